"""A finding as claims over measurements: a quantity for each seed, and the range that it should lie in.

The mean over seeds has Student's t interval; what is measured on held-out text has a second one, over the
choice of this text, by a bootstrap that draws the same documents for all models. Each takes the other's
source of chance as fixed; the interval that decides has both, their deviations added in quadrature. A claim
holds where it lies in the range, does not hold where it lies outside, and is undecided where it crosses a
bound, with a single seed, and where the values of all seeds are equal and on a bound of the range, since
equal values show no spread. What is computed instead of measured is exact: a single value decides.

Axes: R resamples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from loriini.compare.seeds import Estimate, over_seeds, t_factor
from loriini.evaluate.intervals import CONFIDENCE, percentile_interval

Values = Mapping[int, float]
"""A quantity by seed, or by round where rounds are repeated instead of trainings."""
Resamples = Mapping[int, NDArray[np.float64]]
"""By seed, what a quantity is on every resample of the held-out text (R,)."""


class OnText(dict[int, float]):
    """A quantity by seed that is measured on held-out text; `resamples` tells it on resamples of the text."""

    def __init__(self, values: Values, resamples: Callable[[], Resamples]) -> None:
        super().__init__(values)
        self.resamples = resamples


HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
VERBS = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    UNDECIDED: ("is undecided", "are undecided"),
}
"""Each verdict as the predicate of one claim and of several."""
CLOSE = 0.02
"""Nats a token, 2 % of perplexity, up to which two losses count as about equal."""


@dataclass(frozen=True)
class Claim:
    """That the mean of `values` over seeds lies between `low` and `high`.

    A single bound of 0 is strict: above 0, or below it. With both bounds 0 the mean is exactly 0.
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
    """Why there are no values to judge it by, although all that it is about was measured."""

    @property
    def finite(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values.values() if math.isfinite(value)]

    @property
    def estimate(self) -> Estimate | None:
        """The mean and its interval; None without a finite value."""
        return over_seeds(self.finite) if self.finite else None

    @property
    def text_interval(self) -> tuple[float, float] | None:
        """The interval over the choice of held-out text, seeds averaged; None where no text is measured."""
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
        """The claim with its estimate and verdict as a JSON object; open bounds are null."""
        found, text = self.estimate or Estimate(math.nan), self.text_interval
        text_low, text_high = map(rounded, text or (None, None))
        told = {
            "quantity": "; ".join(filter(None, (self.quantity, self.unjudged))),
            **{name: rounded(value) for name, value in found.to_dict().items()},
            "text_low": text_low,
            "text_high": text_high,
            "range": [bound if math.isfinite(bound) else None for bound in (self.low, self.high)],
            "unit": self.unit,
            "seeds": len(self.finite),
            "exact": self.exact,
            "chosen_from": self.chosen_from,
        }
        no_spread = text is not None and any(map(math.isnan, text))
        return {**told, "verdict": UNDECIDED if no_spread else judged(told)}


Told = Mapping[str, Any]
"""A claim as its JSON object."""


def judged(claim: Told, claims: int = 1) -> str:
    """Whether a claim holds, with an interval of 1 - 0.05 / n (Bonferroni).

    n are the `claims`, times the quantities that this one's was chosen from.
    """
    mean, low, high = claim["mean"], claim["low"], claim["high"]
    if mean is None or (low is None and not claim["exact"]):
        return UNDECIDED
    least, greatest = bounds = claim["range"]
    if not claim["exact"] and low == high and mean in bounds and least != greatest:
        return UNDECIDED
    down, up = (0.0, 0.0) if claim["exact"] else deviations(claim, claims * claim.get("chosen_from", 1))
    sides = {side(value, bounds) for value in (mean - down, mean + up)}
    return UNDECIDED if len(sides) > 1 else HOLDS if sides == {0} else FAILS


def deviations(claim: Told, quantities: int) -> tuple[float, float]:
    """How far the interval that decides reaches below and above the mean, one of so many quantities."""
    mean, confidence = claim["mean"], 1 - (1 - CONFIDENCE) / quantities
    over_training = t_factor(claim["seeds"], confidence) / t_factor(claim["seeds"])
    over_text = float(ndtri((1 + confidence) / 2) / ndtri((1 + CONFIDENCE) / 2))
    text_low, text_high = claim["text_low"], claim["text_high"]
    if text_low is None:
        text_low = text_high = mean
    return (
        math.hypot(over_training * (mean - claim["low"]), over_text * (mean - text_low)),
        math.hypot(over_training * (claim["high"] - mean), over_text * (text_high - mean)),
    )


def side(value: float, bounds: Sequence[float | None]) -> int:
    """-1 below a range, 0 within it, 1 above it; None: no bound. A single bound of 0 is strict."""
    low, high = bounds
    if low is not None and (value < low or (value == low == 0 and high is None)):
        return -1
    return int(high is not None and (value > high or (value == high == 0 and low is None)))


def verdicts(claims: Sequence[Told]) -> list[str]:
    """Those on the claims of one finding: none fails by chance alone in more than 5 % of cases.

    A claim that does not hold has to fail with the interval of so many claims, else it is undecided.
    """
    tested = sum(claim["mean"] is not None for claim in claims)
    return [judged(claim, tested) if claim["verdict"] == FAILS else claim["verdict"] for claim in claims]


def overall(claims: Sequence[Told]) -> str:
    """The verdict on a finding: it holds if all of its claims do, and fails if one of `verdicts` fails."""
    found = verdicts(claims)
    if FAILS in found:
        return FAILS
    return HOLDS if found and all(verdict == HOLDS for verdict in found) else UNDECIDED


def sentence(verdict: str, claims: Sequence[Told], scale: str) -> str:
    """The verdict in words, with a claim that decided it."""
    if not claims:
        return f"At scale {scale} nothing was measured: {verdict}."
    shown = counted(claim["verdict"] for claim in claims)
    alike = [claim for claim, found in zip(claims, verdicts(claims), strict=True) if found == verdict]
    alike = sorted(alike or claims, key=lambda claim: (claim["mean"] is None, claim["verdict"] != FAILS))
    parts = f"Of {len(claims)} claims {shown}. For example" if len(claims) > 1 else "The claim"
    by_chance = verdict == UNDECIDED and any(claim["verdict"] == FAILS for claim in claims)
    chance = ": among so many claims, what does not hold may be chance" if by_chance else ""
    return f"At scale {scale} the finding {verdict_phrase(verdict)}{chance}. {parts}: {in_words(alike[0])}."


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of each verdict: 3 hold, 1 does not hold, 1 is undecided."""
    found = list(verdicts)
    return ", ".join(f"{n} {VERBS[v][n > 1]}" for v in VERBS if (n := found.count(v)))


def verdict_phrase(verdict: str) -> str:
    """A verdict as the predicate of a sentence."""
    return VERBS[verdict][0]


def in_words(claim: Told) -> str:
    """A claim with its estimate, interval and range."""
    return f"{claim['quantity']}: {estimate_text(claim)} (claimed: {range_text(claim)})"


def estimate_text(found: Mapping[str, Any]) -> str:
    """A mean with its intervals: −0.031 (seeds −0.050 to −0.012, text −0.040 to −0.022) nats."""
    if found["mean"] is None:
        return "not tested"
    unit = f" {found['unit']}" if found.get("unit") else ""
    mean = number(found["mean"])
    if found["low"] is None:
        return f"{mean}{unit}" + ("" if found.get("exact") else ", one seed")
    interval = f"{number(found['low'])} to {number(found['high'])}"
    if found.get("text_low") is not None:
        interval = f"seeds {interval}, text {number(found['text_low'])} to {number(found['text_high'])}"
    return f"{mean} ({interval}){unit}"


def range_text(claim: Told) -> str:
    """The range that a claim states: below 0, at least 0.5, −0.02 to 0.02."""
    low, high = claim["range"]
    if low is None and high is None:
        return "not stated"
    if low is None:
        return f"at most {number(high)}" if high else "below 0"
    if high is None:
        return f"at least {number(low)}" if low else "above 0"
    return f"{number(low)} to {number(high)}" if low != high else f"exactly {number(low)}"


def number(value: float) -> str:
    """Three or four significant digits, with a minus sign."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size >= 1 else f"{value:.3f}"
    return text.replace("-", "−")


def significant(value: float) -> float:
    """A number with six significant digits."""
    return float(f"{value:.6g}")


def rounded(value: float | None) -> float | None:
    """`significant`; None for none and for a number that is not finite."""
    return None if value is None or not math.isfinite(value) else significant(value)


def rounded_estimate(values: Values) -> dict[str, float | None]:
    """The mean of a quantity over seeds, and its interval, with six significant digits."""
    return {name: rounded(value) for name, value in over_seeds(list(values.values())).to_dict().items()}


def combined(of: Callable[[Any], Any], several: Sequence[Values]) -> dict[int, float]:
    """A function of several quantities, for the seeds that all have; on resampled text alike.

    `of` takes the quantities' values, each a number or an array (R,).
    """
    shared = sorted(set.intersection(*(set(values) for values in several))) if several else []
    found = {seed: float(of([values[seed] for values in several])) for seed in shared}
    if not any(isinstance(values, OnText) for values in several):
        return found

    def resamples() -> Resamples:
        drawn = [values.resamples() if isinstance(values, OnText) else values for values in several]
        return {seed: of([values[seed] for values in drawn]) for seed in shared}

    return OnText(found, resamples)


def difference(one: Values, other: Values) -> dict[int, float]:
    """One less the other, for the seeds that both have."""
    return combined(lambda pair: pair[0] - pair[1], (one, other))


def ratio(one: Values, other: Values) -> dict[int, float]:
    """One divided by the other, for the seeds that both have; NaN where that is 0."""
    return combined(lambda pair: pair[0] / np.where(pair[1] == 0, math.nan, pair[1]), (one, other))


def mean_of(several: Sequence[Values]) -> dict[int, float]:
    """The mean of several quantities, for the seeds that all have."""
    return combined(lambda values: np.mean(values, axis=0), several)


def extreme(several: Sequence[Values], best: Any) -> dict[int, float]:
    """The one of several quantities whose mean over the seeds that all have is largest or smallest.

    `best` is max or min. Chosen for each seed by itself, it would be noise that is chosen; chosen for all,
    it is so in part, for which a claim states what it is `chosen_from`.
    """
    shared = [combined(itemgetter(i), several) for i in range(len(several))]
    return best(filter(None, shared), key=lambda values: fmean(values.values()), default={})


def occurs(quantity: str, counts: Values) -> Claim:
    """That something occurs: it does where any seed has a count of it; where none has, others still may."""
    total = sum(counts.values())
    return exactly(quantity, total, low=0.0) if total else Claim(quantity, counts, low=0.0)


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
