"""Intervals over seeds, and differences paired by seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loriini.common.json_file import without_nan
from loriini.evaluate.intervals import CONFIDENCE, Difference, clamped, t_quantile

InstanceLosses = Mapping[str, Sequence[float]]
"""Domain → mean negative log-likelihood of each held-out instance."""


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds and its confidence interval; bounds are NaN where there is a single seed."""

    mean: float
    low: float = math.nan
    high: float = math.nan

    def to_dict(self) -> dict[str, float | None]:
        return without_nan(asdict(self))


def t_factor(seeds: int, confidence: float = CONFIDENCE) -> float:
    """Half the width of the interval of a mean over seeds, in standard deviations between seeds."""
    return t_quantile(seeds - 1, confidence) / math.sqrt(seeds)


def in_quadrature(reaches: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Half-widths below and above of an interval that combines several independent sources of variation.

    Each source is given by its own half-widths (`reaches`).
    """
    below, above = (math.hypot(*reach) for reach in zip(*reaches, strict=True))
    return below, above


def over_seeds(values: Sequence[float]) -> MeanInterval:
    """The mean of one value a seed, with Student's t interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return MeanInterval(mean)
    half = t_factor(len(values)) * float(np.std(values, ddof=1))
    return MeanInterval(mean, mean - half, mean + half)


def geometric(values: Sequence[float]) -> MeanInterval:
    """The geometric mean of perplexities, with the t interval of their logarithms."""
    log_mean = over_seeds([math.log(value) for value in values])
    return MeanInterval(
        math.exp(log_mean.mean), *(math.exp(clamped(x)) for x in (log_mean.low, log_mean.high))
    )


def paired_by_seed(a: Mapping[int, float], b: Mapping[int, float]) -> Difference:
    """The relative difference b / a - 1 of perplexities by seed, over the seeds that both have.

    The t interval is that of the mean of log b - log a; NaN with a single seed. It covers the seed
    (initialisation and order of the batches), not the choice of held-out text.
    """
    log_ratio = over_seeds([math.log(b[seed] / a[seed]) for seed in sorted(a.keys() & b.keys())])
    return Difference(*(math.expm1(clamped(x)) for x in (log_ratio.mean, log_ratio.low, log_ratio.high)))


def over_seeds_and_text(difference: Mapping[str, Any]) -> Difference:
    """The interval of a result's `difference` over seeds and held-out text together; NaN with one seed.

    The half-widths of log-perplexity are added in quadrature.
    """
    logs = [
        [math.log1p(one.change), math.log1p(one.low), math.log1p(one.high)]
        for one in map(Difference.from_dict, (difference["seeds"], difference["documents"]))
    ]
    below, above = in_quadrature((change - low, high - change) for change, low, high in logs)
    change = logs[0][0]
    return Difference(*(math.expm1(clamped(x)) for x in (change, change - below, change + above)))


def mean_losses(by_seed: Sequence[InstanceLosses]) -> dict[str, Any]:
    """Every instance's loss, averaged over seeds."""
    return {domain: np.mean([losses[domain] for losses in by_seed], axis=0) for domain in by_seed[0]}
