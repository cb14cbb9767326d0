"""A finding as claims over measurements: a quantity for each seed, and the range that it should lie in.

The mean over seeds has Student's t interval. A claim holds where the whole interval lies in the range, does
not hold where none of it does, and is undecided otherwise and with a single seed. What is computed instead of
measured is exact: a single value without an interval decides.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from loriini.compare.seeds import Estimate, over_seeds

Values = Mapping[int, float]
"""A quantity by seed, or by round where rounds are repeated instead of trainings."""

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
    """That the mean of `values` over seeds lies between `low` and `high`."""

    says: str
    values: Values
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    exact: bool = False

    @property
    def finite(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values.values() if math.isfinite(value)]

    @property
    def estimate(self) -> Estimate | None:
        """The mean and its interval; None without a finite value."""
        return over_seeds(self.finite) if self.finite else None

    @property
    def verdict(self) -> str:
        """Whether the claim holds."""
        found = self.estimate
        if found is None or (found.low is None and not self.exact):
            return UNDECIDED
        low, high = (found.mean if bound is None else bound for bound in (found.low, found.high))
        if self.low <= low and high <= self.high:
            return HOLDS
        return FAILS if high < self.low or low > self.high else UNDECIDED

    def to_dict(self) -> dict[str, Any]:
        """The claim with its estimate and verdict as a JSON object; open bounds are null."""
        found = self.estimate or Estimate(math.nan)
        return {
            "says": self.says,
            **{name: rounded(value) for name, value in found.to_dict().items()},
            "wanted": [bound if math.isfinite(bound) else None for bound in (self.low, self.high)],
            "unit": self.unit,
            "seeds": len(self.finite),
            "exact": self.exact,
            "verdict": self.verdict,
        }


def overall(verdicts: Sequence[str]) -> str:
    """The verdict on a finding: it holds if all of its claims do, and fails if one fails."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and all(verdict == HOLDS for verdict in verdicts) else UNDECIDED


def sentence(verdict: str, claims: Sequence[Mapping[str, Any]], scale: str) -> str:
    """The verdict in words, with the claims that decided it."""
    if not claims:
        return f"At scale {scale} nothing was measured: {verdict}."
    shown = counted(claim["verdict"] for claim in claims)
    decisive = next(iter([c for c in claims if c["verdict"] == verdict] or claims))
    parts = f"Of {len(claims)} claims {shown}. For example" if len(claims) > 1 else "The claim"
    return f"At scale {scale} the finding {verdict_phrase(verdict)}. {parts}: {in_words(decisive)}."


def counted(verdicts: Iterable[str]) -> str:
    """How many there are of each verdict: 3 hold, 1 does not hold, 1 is undecided."""
    found = list(verdicts)
    return ", ".join(f"{n} {VERBS[v][n > 1]}" for v in VERBS if (n := found.count(v)))


def verdict_phrase(verdict: str) -> str:
    """A verdict as the predicate of a sentence."""
    return VERBS[verdict][0]


def in_words(claim: Mapping[str, Any]) -> str:
    """A claim with its estimate, interval and range."""
    return f"{claim['says']}: {estimate_text(claim)} (claimed: {range_text(claim)})"


def estimate_text(found: Mapping[str, Any]) -> str:
    """A mean with its interval: −0.031 (−0.050 to −0.012) nats."""
    if found["mean"] is None:
        return "not measured"
    unit = f" {found['unit']}" if found.get("unit") else ""
    mean = number(found["mean"])
    if found["low"] is None:
        return f"{mean}{unit}" + ("" if found.get("exact") else ", one seed")
    return f"{mean} ({number(found['low'])} to {number(found['high'])}){unit}"


def range_text(claim: Mapping[str, Any]) -> str:
    """The range that a claim states: below 0, above 0, between −0.02 and 0.02."""
    low, high = claim["wanted"]
    if low is None:
        return f"at most {number(high)}"
    return f"at least {number(low)}" if high is None else f"{number(low)} to {number(high)}"


def number(value: float) -> str:
    """Three or four significant digits, with a minus sign."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.3g}" if size >= 1 else f"{value:.3f}"
    return text.replace("-", "−")


def rounded(value: float | None) -> float | None:
    """A number with six significant digits; None for none and for one that is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def rounded_estimate(values: Values) -> dict[str, float | None]:
    """The mean of a quantity over seeds, and its interval, with six significant digits."""
    return {name: rounded(value) for name, value in over_seeds(list(values.values())).to_dict().items()}


def difference(one: Values, other: Values) -> dict[int, float]:
    """One less the other, for the seeds that both have."""
    return {seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())}


def ratio(one: Values, other: Values) -> dict[int, float]:
    """One divided by the other, for the seeds that both have."""
    return {seed: one[seed] / other[seed] for seed in sorted(one.keys() & other.keys()) if other[seed]}


def mean_of(several: Sequence[Values]) -> dict[int, float]:
    """The mean of several quantities, for the seeds that all have."""
    seeds = set.intersection(*(set(values) for values in several)) if several else set()
    return {seed: fmean(values[seed] for values in several) for seed in sorted(seeds)}


def extreme(several: Sequence[Values], best: Any) -> dict[int, float]:
    """The largest or smallest (`best` is max or min) of several quantities, for the seeds that all have."""
    seeds = set.intersection(*(set(values) for values in several)) if several else set()
    return {seed: best(values[seed] for values in several) for seed in sorted(seeds)}


def below(what: str, one: Values, other: Values, *, unit: str = "nats") -> Claim:
    """That one quantity is below another, paired by seed."""
    return Claim(what, difference(one, other), high=0.0, unit=unit)


def above(what: str, one: Values, other: Values, *, unit: str = "nats") -> Claim:
    """That one quantity is above another, paired by seed."""
    return Claim(what, difference(one, other), low=0.0, unit=unit)


def close(what: str, one: Values, other: Values, within: float = CLOSE, *, unit: str = "nats") -> Claim:
    """That two quantities differ by at most `within`, paired by seed."""
    return Claim(what, difference(one, other), -within, within, unit)


def exactly(
    what: str, value: float, low: float = -math.inf, high: float = math.inf, *, unit: str = ""
) -> Claim:
    """A claim about a number that is computed."""
    return Claim(what, {0: value}, low, high, unit, exact=True)
