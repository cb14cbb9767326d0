"""Arithmetic on quantities by seed; whatever is done to the values is also done to their bootstrap resamples.

Axes: R resamples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.compare.seeds import over_seeds

Values = Mapping[int, float]
"""A quantity by seed, or by round where rounds are repeated instead of trainings."""
Resamples = Mapping[int, NDArray[np.float64]]
"""Seed → a quantity on every resample of the held-out text (R,)."""


class OnText(dict[int, float]):
    """A quantity by seed that is measured on held-out text; `resamples` gives it on resamples of the text.

    `freedom` are the degrees of freedom of the interval over them.
    """

    def __init__(self, values: Values, resamples: Callable[[], Resamples], freedom: float) -> None:
        super().__init__(values)
        self.resamples, self.freedom = resamples, freedom


def combined(of: Callable[[Any], Any], several: Sequence[Values]) -> dict[int, float]:
    """Apply `of` to several quantities, for the seeds that all have, and likewise to their resamples.

    `of` takes a list of the quantities' values for one seed, each a number or an array (R,).
    """
    shared = sorted(set.intersection(*(set(values) for values in several))) if several else []
    found = {seed: float(of([values[seed] for values in several])) for seed in shared}
    on_text = [values for values in several if isinstance(values, OnText)]
    if not on_text:
        return found

    def resamples() -> Resamples:
        drawn = [values.resamples() if isinstance(values, OnText) else values for values in several]
        return {seed: of([values[seed] for values in drawn]) for seed in shared}

    return OnText(found, resamples, min(values.freedom for values in on_text))


def difference(one: Values, other: Values) -> dict[int, float]:
    """One minus the other, for the seeds that both have."""
    return combined(lambda pair: pair[0] - pair[1], (one, other))


def ratio(one: Values, other: Values) -> dict[int, float]:
    """One divided by the other, for the seeds that both have; NaN where that is 0."""
    return combined(lambda pair: pair[0] / np.where(pair[1] == 0, math.nan, pair[1]), (one, other))


def mean_of(several: Sequence[Values]) -> dict[int, float]:
    """The mean of several quantities, for the seeds that all have."""
    return combined(lambda values: np.mean(values, axis=0), several)


def extreme(several: Sequence[Values], best: Any) -> dict[int, float]:
    """The one of several quantities whose mean over the seeds that all have is largest or smallest.

    `best` is max or min. Choosing for each seed separately would choose noise.
    """
    shared = [combined(itemgetter(i), several) for i in range(len(several))]
    return best(filter(None, shared), key=lambda values: fmean(values.values()), default={})


def significant(value: float) -> float:
    """A number with six significant digits."""
    return float(f"{value:.6g}")


def rounded(value: float | None) -> float | None:
    """`significant`; None for None and for a number that is not finite."""
    return None if value is None or not math.isfinite(value) else significant(value)


def rounded_interval(values: Values) -> dict[str, float | None]:
    """The mean of a quantity over seeds, and its interval, with six significant digits."""
    return {name: rounded(value) for name, value in over_seeds(list(values.values())).to_dict().items()}
