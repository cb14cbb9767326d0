"""Grids of test cases: every pair of values once by default, every combination with `-m grid`."""

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from itertools import combinations, product
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Hashable)


def cover(candidates: Iterable[T], parts_of: Callable[[T], Iterable[Any]]) -> list[T]:
    """Some of the candidates, which together have every part that any of them has.

    Greedy: each is the candidate with most parts that are missing yet, the first of equals.
    """
    parts = {candidate: set(parts_of(candidate)) for candidate in candidates}
    missing, chosen = set().union(*parts.values()), []
    while missing:
        chosen.append(max(parts, key=lambda candidate: len(parts[candidate] & missing)))
        missing -= parts[chosen[-1]]
    return chosen


def pairwise_rows(axes: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Rows of indices, one into each axis, so that any two values of different axes share a row."""
    return cover(product(*(range(len(axis)) for axis in axes)), lambda row: combinations(enumerate(row), 2))


def grid(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """`@grid(design=GRID, block=BLOCKS)`: the product of these, pairwise unless `-m grid` asks for all.

    The combinations that pairwise covering leaves out are marked `grid`, which the default run deselects.
    """
    return _product(axes, set(pairwise_rows(list(axes.values()))))


def one_of_each(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """As `grid`, but by default every value of each axis only once: where the axes cannot interact."""
    sizes = [len(axis) for axis in axes.values()]
    return _product(axes, {tuple(i % size for size in sizes) for i in range(max(sizes))})


def _product(axes: dict[str, Sequence[Any]], by_default: Set[tuple[int, ...]]) -> pytest.MarkDecorator:
    """The product of the axes; rows of indices that are not `by_default` are marked `grid`."""
    cases = []
    for row in product(*(range(len(axis)) for axis in axes.values())):
        marks = () if row in by_default else (pytest.mark.grid,)
        case = [axis[i] for axis, i in zip(axes.values(), row, strict=True)]
        cases.append(pytest.param(*case, marks=marks, id="-".join(map(_name, case))))
    return pytest.mark.parametrize(list(axes), cases)


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))
