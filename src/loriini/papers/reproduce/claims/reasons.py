"""Likely reasons why a finding does not hold at a scale, with the further runs that support or refute them.

A reason is that other trainings would change the verdict: those claims of the finding that do not hold are
judged again on them. It is supported where all of these claims come nearer to their range and hold, in part
where some of this is so and some is not, and else refuted where something is not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import fmean
from typing import Any

from loriini.papers.published.items import PaperRun
from loriini.papers.reproduce.claims.claim import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    JudgedClaim,
    overall,
    verdicts,
)
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.quantities import difference

SUPPORT = {HOLDS: "supported", FAILS: "refuted", UNDECIDED: "undecided"}
"""Verdicts on reasons."""
IN_PART = "supported in part"
"""The verdict where some claims hold and others do not."""
NEARER = ": how much closer to the paper's claim"
"""The end of the quantity of a claim that another one comes nearer to its range."""

Finding = Callable[[Measured], Iterable[Claim]]
"""A finding, as claims over what was measured."""


@dataclass(frozen=True)
class Reason:
    """Why a finding may not hold: how some rows are trained."""

    name: str
    how: str
    """How they are trained instead."""
    instead: Mapping[str, tuple[str, ...]]
    """Row → the runs that stand for it: of several, that of the lowest training loss."""
    runs: Mapping[str, PaperRun]
    """Further trainings, by names that none of the item's rows has."""

    def claims(self, finding: Finding, before: Iterable[Claim], m: Measured) -> Iterator[Claim]:
        """What holds if this is the reason, about some claims of the finding on one text.

        `m` has the item's rows and the further ones; nothing is claimed if one of these is missing.
        """
        if not all(map(m.rows.get, self.runs)):
            return
        rows = {row: m.rows.get(best_trained(m, names), {}) for row, names in self.instead.items()}
        again = {claim.quantity: claim for claim in finding(replace(m, rows=rows))}
        choices = prod(map(len, self.instead.values()))
        for claim in before:
            redone = again.get(claim.quantity)
            if claim.finite and redone and (redone.finite or redone.unjudged):
                redone = replace(redone, chosen_from=choices * redone.chosen_from)
                yield from changed(claim, redone, self.how)

    def concerns(self, finding: Finding, before: Iterable[Claim], m: Measured) -> bool:
        """Whether its rows alone are enough for the finding to make one of some claims, on one text."""
        rows = {row: m.rows.get(row, {}) for row in self.instead}
        again = {claim.quantity for claim in finding(replace(m, rows=rows)) if claim.finite}
        return any(claim.finite and claim.quantity in again for claim in before)

    def to_dict(
        self, finding: Finding, decisive: Sequence[tuple[str, Claim]], texts: Iterable[Measured]
    ) -> dict[str, Any] | None:
        """The reason with its claims and the verdict on it as a JSON object; None where it claims nothing.

        `decisive` are the claims by text that decided the verdict on the finding, none if it holds.
        """
        claims = [
            {"text": m.text, **claim.to_dict()}
            for m in texts
            for claim in self.claims(finding, [claim for text, claim in decisive if text == m.text], m)
        ]
        return {"name": self.name, "claims": claims, "verdict": support(claims)} if claims else None


def support(claims: Sequence[JudgedClaim]) -> str:
    """The verdict on a reason, from its claims; refuted where the trainings that stand in are the same."""
    changes = [claim for claim in claims if claim["quantity"].endswith(NEARER)]
    if changes and all(claim["mean"] == claim["low"] == claim["high"] == 0 for claim in changes):
        return SUPPORT[FAILS]
    return IN_PART if {HOLDS, FAILS} <= set(verdicts(claims)) else SUPPORT[overall(claims)]


def best_trained(m: Measured, names: Iterable[str]) -> str:
    """The row of the lowest mean training loss; the first where none has any."""
    losses = {name: fmean(m.training_loss(name).values()) for name in names if m.training_loss(name)}
    return min(losses, key=losses.__getitem__) if losses else next(iter(names))


def changed(claim: Claim, redone: Claim, how: str) -> Iterator[Claim]:
    """That a claim which did not hold comes nearer to its range and holds, on other trainings."""
    quantity = f"{claim.quantity}, {how}"
    if redone.finite and not claim.low <= fmean(claim.finite) <= claim.high:
        nearer = f"{quantity}{NEARER}"
        change = difference(claim.distances(), redone.distances())
        yield Claim(nearer, change, low=0.0, unit=claim.unit, chosen_from=redone.chosen_from)
    yield replace(redone, quantity=quantity)
