"""Items in groups: by a key that several of them share, or by their total size."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key in their order; keys are in the order of their first items."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_by_size(items: Iterable[Item], size_of: Callable[[Item], int], size: int) -> Iterator[list[Item]]:
    """Groups of consecutive items, each closed when its total size reaches `size`."""
    group: list[Item] = []
    reached = 0
    for item in items:
        group.append(item)
        reached += size_of(item)
        if reached >= size:
            yield group
            group, reached = [], 0
    if group:
        yield group
