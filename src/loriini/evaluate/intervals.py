"""Uncertainty of a comparison of two models: a paired bootstrap over held-out documents.

Axes: M quantities, N instances, G documents, R resamples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import expm1, inf, nan
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, stdtrit

from loriini.common.json_file import without_nan

_Floats = NDArray[np.float64]
Documents = Mapping[str, Sequence[int]]
"""Domain → number of the document in which each instance begins; if empty, each instance is a document."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
OVERALL = "all"
"""The key of a result over all domains, next to those of single domains."""
SEED = 0
INDICES_AT_ONCE = 1 << 18
"""Roughly how many indices are drawn at once, which bounds the memory."""


@dataclass(frozen=True)
class Difference:
    """Relative difference of perplexity, b / a - 1, and its 95 % interval; below 0, b is better.

    The interval covers the choice of held-out text (from `differences_by_domain`), the seed (from
    `compare.seeds.paired_by_seed`) or both (from `over_seeds_and_text` there). Its bounds are NaN if no
    spread can be estimated. From `difference_of_means`, `change` is the difference b - a of two means.
    """

    change: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """True if the interval excludes 0; False if its bounds are NaN."""
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
    """Relative differences of two models' perplexities by domain, and of their means over domains as `all`.

    Losses are {domain: mean negative log-likelihood of each instance (n,)}, for the same instances in the
    same order; `tokens` says over how many predictions each is the mean (default: equally many). A resample
    draws `documents` with replacement within each domain, the same for both models, and takes all instances
    that begin in a drawn document, since they are correlated; without `documents` it draws instances. The
    interval lies between percentiles of `RESAMPLES` resampled differences of log-perplexity, widened to
    Student's t if documents are few; it is NaN for a single instance. It does not cover the seed: two
    trainings of the same model differ too. ValueError if the models have different domains or numbers of
    instances. None of several domains may be called `all`.
    """
    if not losses_a or losses_a.keys() != losses_b.keys():
        raise ValueError(f"the models' domains differ: {sorted(losses_a)} and {sorted(losses_b)}")
    samples = {}
    for domain in losses_a:
        a, b = (np.asarray(losses[domain], np.float64) for losses in (losses_a, losses_b))
        if a.shape != b.shape or a.ndim != 1 or not len(a):
            raise ValueError(f"domain {domain!r}: losses of shapes {a.shape} and {b.shape} are no pairs")
        tokens_N = (tokens or {}).get(domain, np.ones(len(a)))
        samples[domain] = Sample.from_values([a, b], domain, (documents or {}).get(domain, ()), tokens_N)
    domains = {domain: _difference([sample]) for domain, sample in samples.items()}
    return domains | {OVERALL: _difference([*samples.values()])}


def _difference(domains: Sequence["Sample"]) -> Difference:
    """The relative difference of two models' mean perplexities over these domains."""
    a, b = logsumexp([sample.mean_M for sample in domains], axis=0)
    a_R, b_R = logsumexp([sample.resampled_MR for sample in domains], axis=0)
    freedom = degrees_of_freedom([sample.documents for sample in domains])
    low, high = percentile_interval(widened(b_R - a_R, b - a, freedom))
    return Difference(*(expm1(clamped(x)) for x in (b - a, low, high)))


def difference_of_means(values_a: ArrayLike, values_b: ArrayLike, name: str) -> Difference:
    """The difference b - a of two means over the same N questions, with a paired bootstrap over questions.

    `name` seeds the resamples. The interval is made as in `differences_by_domain`; it is NaN if b - a is the
    same for every question.
    """
    sample = Sample.from_values([values_a, values_b], name)
    (a, b), (a_R, b_R) = sample.mean_M, sample.resampled_MR
    freedom = degrees_of_freedom([sample.documents]) if np.ptp(np.subtract(*sample.sums_MG)) else nan
    return Difference(float(b - a), *percentile_interval(widened(b_R - a_R, b - a, freedom)))


@dataclass(frozen=True)
class Sample:
    """Weighted means of M quantities over the same instances of a domain, and their sums by document."""

    domain: str
    mean_M: _Floats
    sums_MG: _Floats
    weight_G: _Floats

    @classmethod
    def from_values(
        cls, values_MN: Any, domain: str, document_N: Sequence[int] = (), weight_N: ArrayLike | None = None
    ) -> "Sample":
        """The sample of M quantities at N instances; instances of weight 0 are left out.

        If all instances are of one document, each counts as a document: there would be no spread otherwise.
        """
        values_MN = np.asarray(values_MN, np.float64)
        documents_N = np.asarray(document_N or range(values_MN.shape[1]))
        weights_N = np.ones(len(documents_N))
        if weight_N is not None:
            counted_N = np.asarray(weight_N) > 0
            values_MN, documents_N = values_MN[:, counted_N], documents_N[counted_N]
            weights_N = np.asarray(weight_N, np.float64)[counted_N]
        number_N = np.unique(documents_N, return_inverse=True)[1]
        if not number_N.any():
            number_N = np.arange(len(number_N))
        mean_M = np.average(values_MN, axis=1, weights=weights_N)
        sums_MG = np.array([np.bincount(number_N, values_N) for values_N in values_MN * weights_N])
        return cls(domain, mean_M, sums_MG, np.bincount(number_N, weights_N).astype(np.float64))

    @property
    def documents(self) -> int:
        """How many documents G a resample draws."""
        return len(self.weight_G)

    @cached_property
    def resampled_MR(self) -> _Floats:
        """The means over each resample of the documents.

        A bootstrap of G documents underestimates the variance by the factor (G - 1)/G; deviations are scaled
        up by √(G/(G - 1)). Domains are resampled independently. Samples with the same domain name and number
        of documents get the same resamples, so that models can be paired.
        """
        G = self.documents
        rng = np.random.default_rng([SEED, crc32(self.domain.encode())])
        means_MR = np.empty((len(self.mean_M), RESAMPLES))
        rows = max(1, INDICES_AT_ONCE // G)
        for start in range(0, RESAMPLES, rows):
            stop = min(start + rows, RESAMPLES)
            drawn = rng.integers(G, size=(stop - start, G), dtype=np.int32)
            weights_R = self.weight_G[drawn].sum(1)
            for means_R, sums_G in zip(means_MR, self.sums_MG, strict=True):
                means_R[start:stop] = sums_G[drawn].sum(1) / weights_R
        mean_M1 = self.mean_M[:, None]
        return mean_M1 + np.sqrt(G / max(1, G - 1)) * (means_MR - mean_M1)


def degrees_of_freedom(documents: Sequence[int]) -> float:
    """Degrees of freedom (Welch–Satterthwaite) of a mean over domains, assuming equal variance in all.

    (Σ 1/G)² / Σ 1/(G² (G - 1)); `documents` is how many G each domain has. NaN where one has a single
    document, which shows no spread.
    """
    if min(documents, default=0) < 2:
        return nan
    G = np.asarray(documents, np.float64)
    return float((1 / G).sum() ** 2 / (1 / (G**2 * (G - 1))).sum())


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the width of Student's t interval in standard errors; infinite `freedom` is a normal interval."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def widened(resampled: _Floats, measured: ArrayLike, freedom: float) -> _Floats:
    """Resampled values (…, R), their deviations from the measured values (…) scaled up for few documents.

    The factor is the t quantile divided by the normal quantile; NaN if `freedom` is NaN.
    """
    measured = np.asarray(measured, np.float64)[..., None]
    return measured + t_quantile(freedom) / t_quantile(inf) * (resampled - measured)


def percentile_interval(resampled_R: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % interval of a quantity, from its values over resamples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled_R, [tail, 1 - tail])
    return float(low), float(high)


def clamped(logarithm: float) -> float:
    """Clip a logarithm so that `exp` is finite and `expm1` above -1: an interval from few values may be wide.

    NaN stays NaN.
    """
    return float(np.clip(logarithm, -30.0, 700.0))
