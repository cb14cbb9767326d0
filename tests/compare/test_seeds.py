"""Intervals over seeds, against a table of Student's t and plain arithmetic."""

import math
from statistics import mean, stdev

import pytest

from loriini.compare.seeds import geometric, over_seeds, paired_by_seed, t_factor

STUDENT = {2: 12.7062, 3: 4.3027, 5: 2.7764, 10: 2.2622, 30: 2.0452}
"""97.5 % quantiles by number of seeds, from a printed table."""


def test_half_widths_are_those_of_students_table() -> None:
    for seeds, quantile in STUDENT.items():
        assert t_factor(seeds) == pytest.approx(quantile / math.sqrt(seeds), rel=1e-4)


def test_the_interval_of_a_mean() -> None:
    values = [2.0, 2.5, 3.6]
    half = STUDENT[3] * stdev(values) / math.sqrt(3)
    found = over_seeds(values)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (mean(values), mean(values) - half, mean(values) + half), rel=1e-4
    )
    assert over_seeds([2.0]).to_dict() == {"mean": 2.0, "low": None, "high": None}
    logs = over_seeds([math.log(value) for value in values])
    assert geometric(values).low == pytest.approx(math.exp(logs.low))
    assert geometric([5.0]).mean == pytest.approx(5.0)


def test_differences_are_paired_by_seed() -> None:
    a, b = {0: 100.0, 1: 200.0, 2: 50.0, 9: 1.0}, {2: 49.0, 0: 97.0, 1: 196.0}
    logs = [math.log(97 / 100), math.log(196 / 200), math.log(49 / 50)]
    half = STUDENT[3] * stdev(logs) / math.sqrt(3)
    found = paired_by_seed(a, b)
    expected = [math.exp(x) - 1 for x in (mean(logs), mean(logs) - half, mean(logs) + half)]
    assert [found.change, found.low, found.high] == pytest.approx(expected, rel=1e-4)
    assert found.decided  # although the seeds lie a factor of four apart
    alone = paired_by_seed({3: 10.0}, {3: 11.0})
    assert alone.change == pytest.approx(0.1)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_seeds_that_differ_greatly_have_a_finite_interval() -> None:
    """Two seeds' interval reaches nine deviations: of a run that broke, beyond what exp can hold."""
    for broken in (1e5, 1e60):
        found = paired_by_seed({0: 10.0, 1: 10.0}, {0: 10.0, 1: broken})
        assert -1 < found.low < 0 < found.change < found.high < math.inf
        assert math.isfinite(math.log1p(found.low))
        assert math.isfinite(geometric([10.0, broken]).high)
