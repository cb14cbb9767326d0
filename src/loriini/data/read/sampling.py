"""Samples by hashes of names, which do not depend on the other items or on the process."""

import hashlib


def hash_fraction(name: str) -> float:
    """A hash of a name in [0, 1). Samples by it are nested: a smaller one is part of a larger one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def is_held_out(text: str, share: float) -> bool:
    """Whether a text is in the held-out `share` of all texts; independent of the other texts."""
    return hash_fraction(text) < share
