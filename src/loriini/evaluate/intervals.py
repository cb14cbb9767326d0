"""Uncertainty of a comparison of two models: a paired bootstrap over held-out documents.

Axes: M quantities, N instances, G documents, R resamples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import expm1, inf, nan
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, stdtrit

from loriini.common.json_file import without_nan

_Floats = NDArray[np.float64]
Documents = Mapping[str, Sequence[int]]
"""By domain, a number for the document in which each instance begins; empty: each has its own."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
OVERALL = "all"
"""The key of the difference over all domains, next to those of single domains."""
SEED = 0
INDICES_AT_ONCE = 1 << 18
"""Indices drawn at once, which bounds the memory."""


@dataclass(frozen=True)
class Difference:
    """Relative difference of perplexity, b / a - 1, and its 95 % interval; below 0, b is better.

    Who computes it says what the interval covers: the choice of held-out text (`differences_by_domain`) or of
    the seed (`compare.seeds.paired_by_seed`). Its bounds are NaN where no spread can be estimated. Of means
    that are no losses it is the difference b - a (`difference_of_means`).
    """

    change: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0; an unknown one does not."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, float | None]:
        return without_nan(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Difference":
        return cls(**{name: nan if value is None else value for name, value in values.items()})


def differences_by_domain(
    losses_a: Mapping[str, ArrayLike],
    losses_b: Mapping[str, ArrayLike],
    documents: Documents | None = None,
    tokens: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Difference]:
    """The differences of two models' perplexities by domain, and that of their means over domains as `all`.

    The losses are {domain: mean negative log-likelihood of each instance (n,)}, of the same instances in the
    same order. A resample draws `documents` with replacement within each domain, the same for both models,
    each with all instances that begin in it, since these are correlated; without `documents` it draws
    instances. `tokens` are how many predictions each instance's loss is the mean of; without it all have
    equally many. The interval is that between percentiles of `RESAMPLES` resampled differences of
    log-perplexity, widened to Student's t where documents are few, and NaN where a domain has a single
    instance. It does not cover the seed: two trainings of the same model differ too. ValueError where the two
    do not hold the same domains and numbers of instances; none of several domains may be called `all`.
    """
    samples = _samples(losses_a, losses_b, documents, tokens)
    domains = {domain: _difference([sample]) for domain, sample in samples.items()}
    return domains | {OVERALL: _difference([*samples.values()])}


def difference_of_means(values_a: ArrayLike, values_b: ArrayLike, name: str) -> Difference:
    """The difference of two means over the same N questions, b - a, whose resamples `name` decides.

    Its interval is that of a paired bootstrap over questions, as in `differences_by_domain`; unknown where
    all questions differ by the same, as where none does.
    """
    values_2N = np.stack([np.asarray(values, np.float64) for values in (values_a, values_b)])
    (a, b), questions = values_2N.mean(1), values_2N.shape[1]
    low, high = nan, nan
    if np.ptp(values_2N[1] - values_2N[0]):
        a_R, b_R = resampled_means(values_2N, name)
        low, high = percentile_interval(widened(b_R - a_R, b - a, [questions]))
    return Difference(float(b - a), low, high)


@dataclass(frozen=True)
class _Sample:
    """Both models' log-perplexity of a domain (2,), and that of each resample (2, R)."""

    documents: int
    measured: _Floats
    resampled: _Floats


def _samples(
    losses_a: Mapping[str, ArrayLike],
    losses_b: Mapping[str, ArrayLike],
    documents: Documents | None,
    tokens: Mapping[str, Sequence[int]] | None,
) -> dict[str, _Sample]:
    if not losses_a or losses_a.keys() != losses_b.keys():
        raise ValueError(f"the models' domains differ: {sorted(losses_a)} and {sorted(losses_b)}")
    samples = {}
    for domain in losses_a:
        a, b = (np.asarray(losses[domain], np.float64) for losses in (losses_a, losses_b))
        if a.shape != b.shape or a.ndim != 1 or not len(a):
            raise ValueError(f"domain {domain!r}: losses of shapes {a.shape} and {b.shape} are no pairs")
        document_N = np.asarray((documents or {}).get(domain, ()))
        tokens_N = np.asarray((tokens or {}).get(domain, np.ones(len(a))))
        counted_N = tokens_N > 0
        losses_2N, tokens_N = np.stack([a, b])[:, counted_N], tokens_N[counted_N]
        document_N = document_N[counted_N] if len(document_N) else document_N
        means_2R = resampled_means(losses_2N, domain, document_N.tolist(), tokens_N)
        count = count_documents(document_N.tolist(), len(tokens_N))
        samples[domain] = _Sample(count, np.average(losses_2N, axis=1, weights=tokens_N), means_2R)
    return samples


def resampled_means(
    values_MN: ArrayLike, domain: str, document_N: Sequence[int] = (), weight_N: ArrayLike | None = None
) -> _Floats:
    """Means of M quantities of the same N instances, weighted, over each resample of their documents (M, R).

    A bootstrap of G documents underestimates the variance by the factor (G - 1)/G; deviations are scaled up
    by √(G/(G - 1)).
    Domains are drawn independently; those of the same name and number of documents get the same resamples.
    """
    values_MN = np.asarray(values_MN, np.float64)
    weight_N = np.ones(values_MN.shape[1]) if weight_N is None else np.asarray(weight_N, np.float64)
    number_N = numbered(document_N, values_MN.shape[1])
    size_G = np.bincount(number_N, weight_N)
    sums_MG = np.stack([np.bincount(number_N, values_N * weight_N) for values_N in values_MN])
    rng = np.random.default_rng([SEED, crc32(domain.encode())])
    means_MR = np.empty((len(values_MN), RESAMPLES))
    rows = max(1, INDICES_AT_ONCE // len(size_G))
    for start in range(0, RESAMPLES, rows):
        stop = min(start + rows, RESAMPLES)
        drawn = rng.integers(len(size_G), size=(stop - start, len(size_G)), dtype=np.int32)
        weights_R = size_G[drawn].sum(1)
        for means_R, sums_G in zip(means_MR, sums_MG, strict=True):
            means_R[start:stop] = sums_G[drawn].sum(1) / weights_R
    mean_M1, G = np.average(values_MN, axis=1, weights=weight_N)[:, None], len(size_G)
    return mean_M1 + np.sqrt(G / max(1, G - 1)) * (means_MR - mean_M1)


def count_documents(document_N: Sequence[int], instances: int) -> int:
    """How many documents `resampled_means` draws."""
    return int(numbered(document_N, instances).max()) + 1


def degrees_of_freedom(documents: Sequence[int]) -> float:
    """Degrees of freedom (Welch–Satterthwaite) of a mean over domains, assuming equal variance in all.

    (Σ 1/G)² / Σ 1/(G² (G - 1)); `documents` is how many G each domain has, at least 2.
    """
    G = np.asarray(documents, np.float64)
    return float((1 / G).sum() ** 2 / (1 / (G**2 * (G - 1))).sum())


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the width of Student's t interval, in standard errors; infinite freedom: a normal interval."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def widened(resampled: _Floats, measured: ArrayLike, documents: Sequence[int]) -> _Floats:
    """Resampled values (…, R) with their deviations from the measured ones (…) widened for few documents.

    They are scaled by the t quantile over the normal quantile; `documents` is how many each domain has.
    """
    measured = np.asarray(measured, np.float64)[..., None]
    factor = t_quantile(degrees_of_freedom(documents)) / t_quantile(inf)
    return measured + factor * (resampled - measured)


def numbered(document_N: Sequence[int], instances: int) -> NDArray[np.int64]:
    """The documents of instances, numbered from 0 (N,).

    Instances of a single document count as one document each: they alone show a spread.
    """
    document_of = document_N if len(set(document_N)) > 1 else range(instances)
    return np.unique(np.asarray(document_of), return_inverse=True)[1]


def percentile_interval(resampled_R: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of a quantity, from its values over resamples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled_R, [tail, 1 - tail])
    return float(low), float(high)


def clamped(logarithm: float) -> float:
    """A logarithm whose exponential is finite, and that less 1 above -1; an interval of few values is wide.

    NaN remains NaN.
    """
    return float(np.clip(logarithm, -30.0, 700.0))


def _difference(domains: Sequence[_Sample]) -> Difference:
    """The difference of the means over some domains."""
    a, b = logsumexp([sample.measured for sample in domains], axis=0)
    low, high = nan, nan
    counts = [sample.documents for sample in domains]
    if min(counts) > 1:
        a_R, b_R = logsumexp([sample.resampled for sample in domains], axis=0)
        low, high = percentile_interval(widened(b_R - a_R, b - a, counts))
    return Difference(*(expm1(clamped(x)) for x in (b - a, low, high)))
