"""Samples by hashes of names, which do not depend on the other items or on the process."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TypeVar

from loriini.data.read.document import Document

LARGEST_SHARE = 0.25
LARGEST_HELDOUT = 0.15

_Item = TypeVar("_Item")


def hash_fraction(name: str) -> float:
    """A hash of a name in [0, 1). Samples by it are nested: a smaller one is part of a larger one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def is_held_out(text: str, share: float) -> bool:
    """Whether a text is in the held-out `share` of all texts; independent of the other texts."""
    return hash_fraction(text) < share


def heldout_groups(grouped: Iterable[tuple[Document, str]], heldout_share: float) -> set[str]:
    """Choose the groups to hold out, so that every domain has at least `heldout_share` of its text there.

    Groups are taken in hash order while one of their domains is short of held-out text; a group with more
    than 15 % of any domain's characters is kept for training. If all groups of a domain are that large, its
    smallest is held out.
    """
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for document, group in grouped:
        sizes[document.domain][group] += len(document.text)
    taken: set[str] = set()

    def is_short(domain: str) -> bool:
        held = sum(sizes[domain][group] for group in taken)
        return held < heldout_share * sizes[domain].total()

    def is_large(group: str) -> bool:
        return any(count[group] > LARGEST_HELDOUT * count.total() for count in sizes.values())

    for group in sorted({group for count in sizes.values() for group in count}, key=hash_fraction):
        if not is_large(group) and any(count[group] and is_short(domain) for domain, count in sizes.items()):
            taken.add(group)
    for count in sizes.values():
        if len(count) > 1 and taken.isdisjoint(count):
            taken.add(min(count, key=lambda group: (count[group], group)))
    return taken


def take_evenly(
    groups: Mapping[str, list[_Item]], size: Callable[[_Item], int], limit: int, key: Callable[[_Item], str]
) -> list[_Item]:
    """Choose items of a total size of at most `limit`, as evenly from the groups as their sizes allow.

    No group gives more than a quarter of `limit`, so that none dominates, unless its first item is larger.
    Within a group items are taken in the order of `key`'s hash.
    """
    queue: list[tuple[int, float, _Item]] = []
    for items in groups.values():
        before = 0
        for rank, item in sorted(((hash_fraction(key(item)), item) for item in items), key=itemgetter(0)):
            queue.append((before, rank, item))
            before += size(item)
    chosen, total = list[_Item](), 0
    # The group that has given least so far is next.
    for before, _, item in sorted(queue, key=itemgetter(0, 1)):
        fits = before == 0 or before + size(item) <= LARGEST_SHARE * limit
        if fits and total + size(item) <= limit:
            chosen.append(item)
            total += size(item)
    return chosen
