"""Grids of test cases: every pair of values once by default, every combination with `-m grid`."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise_rows(axes: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Rows of indices, one into each axis, so that any two values of different axes share a row.

    Greedy: each row is the combination that covers most pairs not covered yet, the first of equals.
    """
    rows = list(product(*(range(len(axis)) for axis in axes)))
    pairs_of = {row: set(combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*pairs_of.values())
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs_of[row] & missing))
        chosen.append(best)
        missing -= pairs_of[best]
    return chosen


def grid(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """`@grid(design=GRID, block=BLOCKS)`: the product of these, pairwise unless `-m grid` asks for all.

    The combinations that pairwise covering leaves out are marked `grid`, which the default run deselects.
    """
    values = list(axes.values())
    covered = set(pairwise_rows(values)) if len(values) > 2 else None
    cases = []
    for row in product(*(range(len(axis)) for axis in values)):
        marks = () if covered is None or row in covered else (pytest.mark.grid,)
        case = [axis[i] for axis, i in zip(values, row, strict=True)]
        cases.append(pytest.param(*case, marks=marks, id="-".join(map(_name, case))))
    return pytest.mark.parametrize(list(axes), cases)


def one_of_each(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """As `grid`, but by default every value of each axis only once: where the axes cannot interact."""
    values = list(axes.values())
    longest = max(map(len, values))
    kept = {tuple(i % len(axis) for axis in values) for i in range(longest)}
    cases = []
    for row in product(*(range(len(axis)) for axis in values)):
        case = [axis[i] for axis, i in zip(values, row, strict=True)]
        marks = () if row in kept else (pytest.mark.grid,)
        cases.append(pytest.param(*case, marks=marks, id="-".join(map(_name, case))))
    return pytest.mark.parametrize(list(axes), cases)


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))
