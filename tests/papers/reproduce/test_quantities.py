"""Quantities by seed, and on resamples of the held-out text."""

import numpy as np

from loriini.papers.reproduce.quantities import OnText, difference, extreme, mean_of, ratio


def on_text(value: float, *resamples: float, freedom: float = 9.0) -> OnText:
    return OnText({0: value}, lambda: {0: np.array(resamples)}, freedom)


def test_quantities_are_combined_alike_on_resampled_text() -> None:
    one, other = on_text(2.0, 1.0, 4.0), on_text(4.0, 2.0, 2.0, freedom=3.0)
    for combine, expected in (
        (difference, [-1.0, 2.0]),
        (ratio, [0.5, 2.0]),
        (lambda *pair: mean_of(pair), [1.5, 3.0]),
        (lambda *pair: extreme(pair, min), [1.0, 4.0]),
        (lambda *pair: extreme(pair, max), [2.0, 2.0]),
    ):
        found = combine(one, other)
        assert isinstance(found, OnText)
        assert found.resamples()[0].tolist() == expected
    assert difference(one, other).freedom == 3.0  # that of the fewest documents
    assert difference(one, {0: 1.0}).freedom == 9.0


def test_an_extreme_is_the_same_quantity_for_all_seeds_that_all_have() -> None:
    one, other = {0: 1.0, 1: 5.0, 2: 0.0}, {0: 2.0, 1: 2.0}
    assert extreme([one, other], min) == other
    assert extreme([one, other], max) == {0: 1.0, 1: 5.0}
    assert extreme([one, {}], min) == {}


def test_differences_are_paired_by_seed() -> None:
    assert difference({0: 1.0, 2: 5.0}, {2: 3.0, 1: 0.0}) == {2: 2.0}
