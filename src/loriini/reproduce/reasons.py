"""Likely reasons why a finding does not hold at a scale, with the further runs that support or refute them.

A reason is claims over measurements like a finding: supported where all hold, in part where one holds and
another does not, and else refuted where one does not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loriini.published.items import PaperRun
from loriini.reproduce.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Values,
    below,
    difference,
    extreme,
    overall,
)
from loriini.reproduce.measured import Measured
from loriini.reproduce.scales import Scale, scaled_run
from loriini.train.run import Run

SUPPORT = {HOLDS: "supported", FAILS: "refuted", UNDECIDED: "undecided"}
"""Verdicts on reasons."""
IN_PART = "supported in part"
"""The verdict where some claims hold and others do not."""
RATES = (0.5, 2.0)
"""Multiples of the scale's learning rate that are tried beside it."""

ValuesOf = Callable[[Measured, str], Values]
"""What is measured of a row; where two rows are compared, the lower the better."""


@dataclass(frozen=True)
class FurtherRun(PaperRun):
    """A paper's run that is trained with other settings at a scale."""

    steps: float = 1.0
    """Multiple of the scale's steps."""
    learning_rate: float = 1.0
    """Multiple of the scale's rate."""

    @classmethod
    def of(
        cls, paper: PaperRun, *overrides: str, steps: float = 1.0, learning_rate: float = 1.0
    ) -> "FurtherRun":
        """A paper's run with further overrides and multiples."""
        overrides = (*paper.overrides, *overrides)
        return cls(paper.recipe, paper.design, overrides, steps=steps, learning_rate=learning_rate)

    def changed(self, run: Run) -> Run:
        """The run at a scale with these multiples."""
        rate = self.learning_rate * run.optimizer.learning_rate
        factors = {"steps": self.steps, "learning rate": self.learning_rate}
        changes = [f"{factor:g} times the {name}" for name, factor in factors.items() if factor != 1]
        return replace(
            run,
            name=" ".join([run.name, *changes]),
            steps=round(self.steps * run.steps),
            optimizer=replace(run.optimizer, learning_rate=rate),
        )


def run_at(paper: PaperRun, scale: Scale) -> Run:
    """A paper's run or a further one at a scale."""
    run = scaled_run(paper, scale)
    return paper.changed(run) if isinstance(paper, FurtherRun) else run


@dataclass(frozen=True)
class Reason:
    """Why a finding may not hold."""

    name: str
    runs: Mapping[str, FurtherRun]
    """Further trainings, by names that none of the item's rows has."""
    claims: Callable[[Measured], Iterable[Claim]]
    """What holds if this is the reason, of the item's rows and the further ones on the first text."""

    def to_dict(self, m: Measured) -> dict[str, Any]:
        """The reason with its claims and the verdict on it as a JSON object."""
        claims = [claim.to_dict() for claim in self.claims(m)]
        verdicts = [claim["verdict"] for claim in claims]
        verdict = IN_PART if {HOLDS, FAILS} <= set(verdicts) else SUPPORT[overall(verdicts)]
        return {"name": self.name, "claims": claims, "verdict": verdict}


def twice(row: str) -> str:
    """The name of a row that is trained for twice the steps."""
    return f"{row}, twice the steps"


def in_twice_the_steps(
    name: str,
    runs: Mapping[str, PaperRun],
    rows: Sequence[str],
    claims: Callable[[Measured], Iterable[Claim]],
) -> Reason:
    """A reason by claims over rows and the same rows in twice the steps."""
    return Reason(name, {twice(row): FurtherRun.of(runs[row], steps=2.0) for row in rows}, claims)


def too_few_steps(runs: Mapping[str, PaperRun], better: str, worse: str, values_of: ValuesOf) -> Reason:
    """That what the paper finds better gains on the other in twice the steps, and is then ahead."""

    def claims(m: Measured) -> Iterator[Claim]:
        once, longer = (
            difference(values_of(m, of_row(worse)), values_of(m, of_row(better))) for of_row in (str, twice)
        )
        quantity = f"lead of {better} over {worse} in twice the steps"
        yield from gain_and_lead(quantity, "in these", longer, once)

    return in_twice_the_steps("too few training steps", runs, (better, worse), claims)


def untuned_rate(runs: Mapping[str, PaperRun], better: str, worse: str, values_of: ValuesOf) -> Reason:
    """That with the best of three rates each, what the paper finds better gains on the other and is ahead."""

    def at_rates(row: str) -> dict[str, float]:
        return {f"{row}, {rate:g} times the learning rate": rate for rate in RATES}

    further = {
        name: FurtherRun.of(runs[row], learning_rate=rate)
        for row in (better, worse)
        for name, rate in at_rates(row).items()
    }

    def claims(m: Measured) -> Iterator[Claim]:
        def at_best(row: str) -> Values:
            return extreme([values_of(m, name) for name in (row, *at_rates(row))], min)

        once = difference(values_of(m, worse), values_of(m, better))
        tuned = difference(at_best(worse), at_best(better))
        quantity = f"lead of {better} over {worse}, each at the best of {1 + len(RATES)} learning rates"
        yield from gain_and_lead(quantity, "at one rate", tuned, once)

    return Reason("one learning rate does not suit both", further, claims)


def gain_and_lead(quantity: str, before: str, lead: Values, lead_before: Values) -> Iterator[Claim]:
    """That a lead is larger than the one before, and a lead."""
    yield Claim(f"{quantity}, minus that {before}", difference(lead, lead_before), low=0.0, unit="nats")
    yield Claim(quantity, lead, low=0.0, unit="nats")


def other_setting(
    name: str, override: str, runs: Mapping[str, PaperRun], better: str, worse: str, values_of: ValuesOf
) -> Reason:
    """That the finding holds where both are trained with another setting."""
    renamed = {row: f"{row}, {override.removeprefix('--')}" for row in (better, worse)}
    further = {new: FurtherRun.of(runs[row], override) for row, new in renamed.items()}

    def claims(m: Measured) -> Iterator[Claim]:
        one, other = renamed.values()
        yield below(f"{one} minus {other}", values_of(m, one), values_of(m, other))

    return Reason(name, further, claims)
