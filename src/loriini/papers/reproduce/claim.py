"""A finding as claims over measurements: a quantity for each seed, and the range that it should lie in.

The mean over seeds has Student's t interval; what is measured on held-out text has a second one, over the
choice of this text, by a bootstrap that draws the same documents for all models. Each takes the other source
of variation as fixed; the deciding interval adds the half-widths of both in quadrature. A claim holds if this
interval lies in the range, does not hold if it lies outside, and is undecided otherwise, also with a single
seed or if all seeds are equal and on a bound of the range. What is computed instead of measured is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from loriini.compare.seeds import MeanInterval, in_quadrature, over_seeds, t_factor
from loriini.evaluate.intervals import CONFIDENCE, percentile_interval, t_quantile
from loriini.papers.reproduce.quantities import OnText, Values, difference, rounded

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CLOSE = 0.02
"""Nats a token, 2 % of perplexity, up to which two losses count as about equal."""


@dataclass(frozen=True)
class Claim:
    """The claim that the mean of `values` over seeds is between `low` and `high`; undecided without values.

    A single bound of 0 is strict: above 0, or below it.
    """

    quantity: str
    values: Values
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    exact: bool = False

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values.values() if math.isfinite(value)]

    @property
    def seed_interval(self) -> MeanInterval:
        """The mean and its interval over seeds; NaN without a finite value."""
        return over_seeds(self.finite) if self.finite else MeanInterval(math.nan)

    @property
    def text_interval(self) -> tuple[float, float] | None:
        """The interval over the choice of held-out text, seeds averaged.

        None if `values` are not measured on text, NaN if the text shows no spread.
        """
        if not isinstance(self.values, OnText) or not self.values:
            return None
        return percentile_interval(np.mean([*self.values.resamples().values()], axis=0))

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The deciding interval; NaN where seeds or text show no spread."""
        seeds = self.seed_interval
        mean = seeds.mean
        if self.exact or not math.isfinite(seeds.low):
            return (mean, mean) if self.exact else (math.nan, math.nan)
        factor = t_factor(len(self.finite), confidence) / t_factor(len(self.finite))
        reaches = [(factor * (mean - seeds.low), factor * (seeds.high - mean))]
        if text := self.text_interval:
            assert isinstance(self.values, OnText)
            factor = t_quantile(self.values.freedom, confidence) / t_quantile(self.values.freedom)
            reaches.append((factor * (mean - text[0]), factor * (text[1] - mean)))
        below, above = in_quadrature(reaches)
        return mean - below, mean + above

    def judged(self, confidence: float = CONFIDENCE) -> str:
        """HOLDS, FAILS or UNDECIDED, by the interval of this confidence."""
        low, high = self.interval(confidence)
        if math.isnan(low) or (not self.exact and low == high and low in (self.low, self.high)):
            return UNDECIDED
        sides = {self.side(low), self.side(high)}
        return UNDECIDED if len(sides) > 1 else HOLDS if sides == {0} else FAILS

    def side(self, value: float) -> int:
        """-1 below the range, 0 within it, 1 above it."""
        if value < self.low or (value == self.low == 0 and math.isinf(self.high)):
            return -1
        return int(value > self.high or (value == self.high == 0 and math.isinf(self.low)))

    def to_dict(self) -> dict[str, Any]:
        """The claim with its intervals and verdict as a JSON object; open bounds are null."""
        text_low, text_high = map(rounded, self.text_interval or (None, None))
        return {
            "quantity": self.quantity,
            **{name: rounded(value) for name, value in self.seed_interval.to_dict().items()},
            "text_low": text_low,
            "text_high": text_high,
            "interval": list(map(rounded, self.interval())),
            "range": [bound if math.isfinite(bound) else None for bound in (self.low, self.high)],
            "unit": self.unit,
            "seeds": len(self.finite),
            "exact": self.exact,
            "verdict": self.judged(),
        }


def verdicts(claims: Sequence[Claim]) -> list[str]:
    """The verdicts on the claims of one finding; the chance that any true claim fails is at most 5 %.

    A claim fails only if it does so with the interval corrected for the number of claims (Bonferroni);
    otherwise it is undecided.
    """
    tested = sum(bool(claim.finite) for claim in claims)
    found = [claim.judged() for claim in claims]
    confidence = 1 - (1 - CONFIDENCE) / max(1, tested)
    return [
        claim.judged(confidence) if verdict == FAILS else verdict
        for claim, verdict in zip(claims, found, strict=True)
    ]


def overall(found: Sequence[str]) -> str:
    """The verdict on a finding, from those on its claims: it holds if all do, and fails if one fails."""
    if FAILS in found:
        return FAILS
    return HOLDS if found and set(found) == {HOLDS} else UNDECIDED


def deciding(claims: Sequence[Claim], found: Sequence[str]) -> int | None:
    """Index of the deciding claim: of measured ones, the first with the finding's verdict, else the first."""
    verdict = overall(found)
    measured = [i for i, claim in enumerate(claims) if claim.finite]
    return next((i for i in measured if found[i] == verdict), measured[0] if measured else None)


def judged_against_leak(claim: Claim, too_low: bool, why: str) -> Claim:
    """The claim, or `not_judged` if a leak could explain its verdict.

    One of its rows sees later tokens, which biases the claim's values down (`too_low`) or up.
    """
    utmost = math.inf if too_low else -math.inf
    if not claim.finite or claim.side(float(np.mean(claim.finite))) == claim.side(utmost):
        return claim
    return not_judged(claim, why)


def not_judged(claim: Claim, why: str) -> Claim:
    """The claim without its values, and why: although they were measured, they would decide nothing."""
    return replace(claim, quantity=f"{claim.quantity}; {why}", values={})


def is_clearly_above(values: Values, bound: float) -> bool:
    """Whether the interval of a quantity's mean over seeds is above a bound."""
    return Claim("", values, low=bound).judged() == HOLDS


def differs(
    quantity: str,
    one: Values,
    other: Values,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    unit: str = "nats",
) -> Claim:
    """The claim that one quantity minus another, paired by seed, lies in a range."""
    return Claim(quantity, difference(one, other), low, high, unit)


above = partial(differs, low=0.0)
below = partial(differs, high=0.0)
well_below = partial(differs, high=-CLOSE)
"""The claim that one quantity is below another by at least CLOSE."""


def close(quantity: str, one: Values, other: Values, within: float = CLOSE, *, unit: str = "nats") -> Claim:
    """The claim that two quantities differ by at most `within`, paired by seed."""
    return differs(quantity, one, other, low=-within, high=within, unit=unit)


def exactly(
    quantity: str, value: float, low: float = -math.inf, high: float = math.inf, *, unit: str = ""
) -> Claim:
    """A claim about a number that is computed."""
    return Claim(quantity, {0: value}, low, high, unit, exact=True)
