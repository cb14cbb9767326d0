"""Likely reasons: their further runs are new ones, their claims are about these, and claims decide."""

from dataclasses import replace
from typing import Any

import pytest

from loriini.reproduce.claims import Claim
from loriini.reproduce.item_reasons import REASONS
from loriini.reproduce.items import EXPERIMENTS
from loriini.reproduce.measured import Measured
from loriini.reproduce.reasons import FurtherRun, Reason, run_at, too_few_steps, twice, untuned_rate
from loriini.reproduce.scales import SMALL, TINY

CASES = [(item, reason) for item, reasons in REASONS.items() for reason in reasons]


class Asked(Measured):
    """Measurements of nothing, which remember the rows that they are asked for."""

    asked: set[str]

    def of(self, row: str, *path: str) -> dict[int, float]:
        self.asked.add(row)
        return {}

    def each(self, row: str, *path: str) -> dict[int, Any]:
        self.asked.add(row)
        return {}


@pytest.mark.parametrize(("item", "reason"), CASES, ids=[f"{i}: {r.name}" for i, r in CASES])
def test_a_reason_is_about_its_own_runs_and_the_items(item: str, reason: Reason) -> None:
    Asked.asked = set()
    assert list(reason.claims(Asked({})))
    own = EXPERIMENTS[item].runs.keys()
    assert reason.runs.keys().isdisjoint(own)
    assert reason.runs.keys() <= Asked.asked <= own | reason.runs.keys()


@pytest.mark.parametrize("scale", [TINY, SMALL], ids=["tiny", "small"])
def test_further_runs_train_something_else(scale: Any) -> None:
    for item, row in EXPERIMENTS.items():
        own = [replace(run_at(paper, scale), name="") for paper in row.runs.values()]
        for name, paper in row.further_runs.items():
            assert replace(run_at(paper, scale), name="") not in own, f"{item}: {name}"


def test_a_further_run_keeps_the_papers_settings() -> None:
    paper = EXPERIMENTS["lory-fig4"].runs["0.3B (rand batch)"]
    run = run_at(paper, TINY)
    further = run_at(FurtherRun.of(paper, steps=2.0, learning_rate=0.5), TINY)
    assert further.steps == 2 * TINY.steps
    assert further.optimizer.learning_rate == TINY.learning_rate / 2
    assert replace(further, steps=run.steps, optimizer=run.optimizer, name=run.name) == run


def near(value: float) -> dict[int, float]:
    """Values of three seeds close to one."""
    return {seed: value + seed / 100 for seed in range(3)}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((-1.0,), "supported"),
        ((1.0,), "refuted"),
        ((-1.0, 1.0), "supported in part"),
        ((-1.0, 0.0), "undecided"),
        ((1.0, 0.0), "refuted"),
    ],
)
def test_claims_decide_whether_a_reason_is_supported(values: tuple[float, ...], verdict: str) -> None:
    def claims(m: Measured) -> list[Claim]:
        return [Claim("x", near(value), high=0.0) for value in values]

    assert Reason("too few steps", {}, claims).to_dict(Measured({}))["verdict"] == verdict


@pytest.mark.parametrize(
    ("lead", "verdict"), [(0.5, "supported"), (-0.5, "supported in part"), (-2.0, "refuted")]
)
def test_a_lead_that_grows_but_is_still_behind_supports_in_part(lead: float, verdict: str) -> None:
    losses = {"better": 3.0, "worse": 2.0, twice("better"): 2.0 - lead, twice("worse"): 2.0}

    def loss(m: Measured, row: str) -> dict[int, float]:
        return {seed: losses[row] * (1 + seed / 1000) for seed in range(3)}

    paper = EXPERIMENTS["lory-fig4"].runs["0.3B (rand batch)"]
    reason = too_few_steps({"better": paper, "worse": paper}, "better", "worse", loss)
    assert reason.to_dict(Measured({}))["verdict"] == verdict


@pytest.mark.parametrize(
    ("best_better", "best_worse", "verdict"),
    [
        (1.8, 2.5, "supported"),  # its lead was 0.1 at one rate
        (1.9, 2.0, "undecided"),  # it leads, as it did
        (2.0, 1.9, "refuted"),
    ],
)
def test_a_lead_that_the_rate_does_not_change_supports_nothing(
    best_better: float, best_worse: float, verdict: str
) -> None:
    losses = {"better": 2.9, "worse": 3.0}
    tuned = {"better": best_better, "worse": best_worse}

    def loss(m: Measured, row: str) -> dict[int, float]:
        name, _, rate = row.partition(", ")
        mean = tuned[name] if rate.startswith("2 ") else losses[name]
        return {seed: mean + seed / 100 * (row != "worse") for seed in (-1, 0, 1)}

    paper = EXPERIMENTS["lory-fig4"].runs["0.3B (rand batch)"]
    reason = untuned_rate({"better": paper, "worse": paper}, "better", "worse", loss)
    assert reason.to_dict(Measured({}))["verdict"] == verdict
