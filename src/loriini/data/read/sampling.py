"""Sampling by hashes: whether an item is drawn depends on neither the other items nor the process."""

import hashlib


def hash_fraction(name: str) -> float:
    """A hash of `name`, in [0, 1). Samples of the items below a bound are nested."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def is_held_out(text: str, share: float) -> bool:
    """Whether a text is in the held-out `share` of all texts; independent of the other texts."""
    return hash_fraction(text) < share
