"""Claims and verdicts in words."""

from collections.abc import Iterable, Sequence

from loriini.papers.reproduce.claims.claim import FAILS, HOLDS, UNDECIDED, JudgedClaim, verdicts
from loriini.reporting.wording import minus

VERBS = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    UNDECIDED: ("is undecided", "are undecided"),
}
"""Each verdict as the predicate of one claim and of several."""


FAILING = "one of its m claims fails with an interval of 1 − 0.05/m"
"""When a finding does not hold; see `claim.verdicts`."""


def sentence(verdict: str, claims: Sequence[JudgedClaim], scale: str) -> str:
    """The verdict in words, with a claim that decided it."""
    if not claims:
        return f"At scale {scale} nothing was measured: {verdict}."
    shown = counted(claim["verdict"] for claim in claims)
    deciding = [claim for claim, outcome in zip(claims, verdicts(claims), strict=True) if outcome == verdict]
    deciding = sorted(deciding or claims, key=lambda c: (c["mean"] is None, c["verdict"] != FAILS))
    parts = f"Of {len(claims)} claims {shown}. For example" if len(claims) > 1 else "The claim"
    by_chance = verdict == UNDECIDED and any(claim["verdict"] == FAILS for claim in claims)
    chance = ": among so many claims, what does not hold may be chance" if by_chance else ""
    return f"At scale {scale} the finding {VERBS[verdict][0]}{chance}. {parts}: {in_words(deciding[0])}."


def counted(outcomes: Iterable[str]) -> str:
    """How many there are of each verdict: 3 hold, 1 does not hold, 1 is undecided."""
    listed = list(outcomes)
    return ", ".join(f"{n} {VERBS[v][n > 1]}" for v in VERBS if (n := listed.count(v)))


def in_words(claim: JudgedClaim) -> str:
    """A claim with what was measured and its range."""
    return f"{claim['quantity']}: {measured_text(claim)} (claimed: {range_text(claim)})"


def measured_text(claim: JudgedClaim) -> str:
    """A mean with its intervals: −0.031 (seeds −0.050 to −0.012, text −0.040 to −0.022) nats."""
    if claim["mean"] is None:
        return "not tested"
    unit = f" {claim['unit']}" if claim["unit"] else ""
    mean = number(claim["mean"])
    if claim["low"] is None:
        return f"{mean}{unit}" + ("" if claim["exact"] else ", one seed")
    interval = f"{number(claim['low'])} to {number(claim['high'])}"
    if claim["text_low"] is not None:
        interval = f"seeds {interval}, text {number(claim['text_low'])} to {number(claim['text_high'])}"
    return f"{mean} ({interval}){unit}"


def range_text(claim: JudgedClaim) -> str:
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
    text = f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}" if size >= 1 else f"{value:.3f}"
    return minus(text)
