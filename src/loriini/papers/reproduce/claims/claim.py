"""A finding as claims over measurements: a quantity for each seed, and the range that it should lie in.

The mean over seeds has Student's t interval; what is measured on held-out text has a second one, over the
choice of this text, by a bootstrap that draws the same documents for all models. Each takes the other's
source of chance as fixed; the interval that decides has both, their deviations added in quadrature. A claim
holds where it lies in the range, does not hold where it lies outside, and is undecided where it crosses a
bound, with a single seed, and where the values of all seeds are equal and on a bound of the range, since
equal values show no spread. What is computed instead of measured is exact: a single value decides.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loriini.compare.seeds import MeanInterval, in_quadrature, over_seeds, t_factor
from loriini.evaluate.intervals import CONFIDENCE, percentile_interval, t_quantile
from loriini.papers.reproduce.claims.quantities import OnText, Values, combined, difference, rounded

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
CLOSE = 0.02
"""Nats a token, 2 % of perplexity, up to which two losses count as about equal."""


@dataclass(frozen=True)
class Claim:
    """That the mean of `values` over seeds lies between `low` and `high`.

    A single bound of 0 is strict: above 0, or below it.
    """

    quantity: str
    values: Values
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    exact: bool = False
    chosen_from: int = 1
    """How many quantities these values were chosen from because of what they are; each could have been."""
    unjudged: str = ""
    """Why the claim has no values, although everything it is about was measured."""

    @property
    def finite(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values.values() if math.isfinite(value)]

    @property
    def bounds(self) -> list[float | None]:
        """The range; None for no bound."""
        return [bound if math.isfinite(bound) else None for bound in (self.low, self.high)]

    @property
    def seed_interval(self) -> MeanInterval:
        """The mean and its interval over seeds; NaN without a finite value."""
        return over_seeds(self.finite) if self.finite else MeanInterval(math.nan)

    @property
    def text_interval(self) -> tuple[float, float] | None:
        """The interval over the choice of held-out text, seeds averaged.

        None where no text is measured, NaN where it shows no spread.
        """
        if not isinstance(self.values, OnText) or not self.values:
            return None
        return percentile_interval(np.mean([*self.values.resamples().values()], axis=0))

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        return str(self.to_dict()["verdict"])

    def distances(self) -> Values:
        """How far the values are from the range; 0 within it."""
        return combined(
            lambda v: np.maximum(np.maximum(self.low - v[0], v[0] - self.high), 0), (self.values,)
        )

    def to_dict(self) -> dict[str, Any]:
        """The claim with its intervals and verdict as a JSON object; open bounds are null."""
        text = self.text_interval
        text_low, text_high = map(rounded, text or (None, None))
        claim = {
            "quantity": "; ".join(filter(None, (self.quantity, self.unjudged))),
            **{name: rounded(value) for name, value in self.seed_interval.to_dict().items()},
            "text_low": text_low,
            "text_high": text_high,
            "text_freedom": rounded(self.values.freedom) if isinstance(self.values, OnText) else None,
            "range": self.bounds,
            "unit": self.unit,
            "seeds": len(self.finite),
            "exact": self.exact,
            "chosen_from": self.chosen_from,
        }
        no_spread = text is not None and any(map(math.isnan, text))
        return {**claim, "verdict": UNDECIDED if no_spread else judged(claim)}


JudgedClaim = Mapping[str, Any]
"""A claim with its intervals and verdict, as a JSON object."""


def judged(claim: JudgedClaim, claims: int = 1) -> str:
    """Whether a claim holds, with an interval of 1 - 0.05 / n (Bonferroni).

    n are the `claims`, times the quantities that this one's was chosen from.
    """
    mean, low, high = claim["mean"], claim["low"], claim["high"]
    if mean is None or (low is None and not claim["exact"]):
        return UNDECIDED
    bounds = claim["range"]
    if not claim["exact"] and low == high and mean in bounds:
        return UNDECIDED
    down, up = (0.0, 0.0) if claim["exact"] else deviations(claim, claims * claim.get("chosen_from", 1))
    sides = {side(value, bounds) for value in (mean - down, mean + up)}
    return UNDECIDED if len(sides) > 1 else HOLDS if sides == {0} else FAILS


def deviations(claim: JudgedClaim, quantities: int) -> tuple[float, float]:
    """How far the deciding interval reaches below and above the mean of one of `quantities`."""
    mean, confidence = claim["mean"], 1 - (1 - CONFIDENCE) / quantities
    over_training = t_factor(claim["seeds"], confidence) / t_factor(claim["seeds"])
    freedom = claim.get("text_freedom") or math.inf  # None: not over text
    over_text = t_quantile(freedom, confidence) / t_quantile(freedom)
    text_low, text_high = claim["text_low"], claim["text_high"]
    if text_low is None:
        text_low = text_high = mean
    return in_quadrature(
        (
            (over_training * (mean - claim["low"]), over_training * (claim["high"] - mean)),
            (over_text * (mean - text_low), over_text * (text_high - mean)),
        )
    )


def side(value: float, bounds: Sequence[float | None]) -> int:
    """-1 below a range, 0 within it, 1 above it; None: no bound. A single bound of 0 is strict."""
    low, high = bounds
    if low is not None and (value < low or (value == low == 0 and high is None)):
        return -1
    return int(high is not None and (value > high or (value == high == 0 and low is None)))


def verdicts(claims: Sequence[JudgedClaim]) -> list[str]:
    """Those on the claims of one finding: none fails by chance alone in more than 5 % of cases.

    A claim that does not hold has to fail with the interval for all of these claims; otherwise it is
    undecided.
    """
    tested = sum(claim["mean"] is not None for claim in claims)
    return [judged(claim, tested) if claim["verdict"] == FAILS else claim["verdict"] for claim in claims]


def overall(claims: Sequence[JudgedClaim]) -> str:
    """The verdict on a finding: it holds if all of its claims do, and fails if one of `verdicts` fails."""
    found = verdicts(claims)
    if FAILS in found:
        return FAILS
    return HOLDS if found and all(verdict == HOLDS for verdict in found) else UNDECIDED


def occurs(quantity: str, counts: Values) -> Claim:
    """That something occurs: it holds if any seed counted it, else it is undecided, since other seeds may."""
    total = sum(counts.values())
    return exactly(quantity, total, low=0.0) if total else Claim(quantity, counts, low=0.0)


def judged_against_leak(claim: Claim, too_low: bool, why: str) -> Claim:
    """A claim whose values are too low, or else too high, as a row of it sees later tokens.

    It is judged where no value beyond the measured ones would change that; elsewhere it is not, for the
    reason `why`: a row that sees later tokens can only be shown to be worse.
    """
    beyond = math.inf if too_low else -math.inf
    if not claim.finite or side(float(np.mean(claim.finite)), claim.bounds) == side(beyond, claim.bounds):
        return claim
    return replace(claim, values={}, unjudged=why)


def below(quantity: str, one: Values, other: Values, *, unit: str = "nats") -> Claim:
    """That one quantity is below another, paired by seed."""
    return Claim(quantity, difference(one, other), high=0.0, unit=unit)


def well_below(quantity: str, one: Values, other: Values, *, unit: str = "nats") -> Claim:
    """That one quantity is below another by at least what counts as about equal, paired by seed."""
    return Claim(quantity, difference(one, other), high=-CLOSE, unit=unit)


def above(quantity: str, one: Values, other: Values, *, unit: str = "nats") -> Claim:
    """That one quantity is above another, paired by seed."""
    return Claim(quantity, difference(one, other), low=0.0, unit=unit)


def close(quantity: str, one: Values, other: Values, within: float = CLOSE, *, unit: str = "nats") -> Claim:
    """That two quantities differ by at most `within`, paired by seed."""
    return Claim(quantity, difference(one, other), -within, within, unit)


def exactly(
    quantity: str, value: float, low: float = -math.inf, high: float = math.inf, *, unit: str = ""
) -> Claim:
    """A claim about a number that is computed."""
    return Claim(quantity, {0: value}, low, high, unit, exact=True)
