"""Likely reasons: their further runs are new ones, and claims that do not hold are judged again on them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.papers.reproduce.claims.claim import Claim, below, close
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.claims.reasons import Reason
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.experiments.likely_reasons import (
    REASONS,
    other_setting,
    too_few_steps,
    twice,
    untuned_rate,
)
from loriini.papers.reproduce.job import rows_to_explain
from loriini.papers.reproduce.plan import Plan
from loriini.papers.reproduce.results import RESULTS, judge
from loriini.papers.reproduce.scales import SMALL, TINY, scaled_run

CASES = [(item, reason) for item, reasons in REASONS.items() for reason in reasons]
PAPER = EXPERIMENTS["lory-fig4"].runs["0.3B (rand batch)"]
RUNS = dict.fromkeys(("better", "worse", "other"), PAPER)


@pytest.mark.parametrize(("item", "reason"), CASES, ids=[f"{i}: {r.name}" for i, r in CASES])
def test_a_reason_is_about_the_items_rows_and_its_own_runs(item: str, reason: Reason) -> None:
    own = EXPERIMENTS[item].runs.keys()
    assert reason.runs.keys().isdisjoint(own)
    assert reason.instead.keys() <= own
    stand_in = {name for names in reason.instead.values() for name in names}
    assert reason.runs.keys() <= stand_in <= own | reason.runs.keys()


@pytest.mark.parametrize("scale", [TINY, SMALL], ids=["tiny", "small"])
def test_further_runs_train_something_else(scale: Any) -> None:
    for item, row in EXPERIMENTS.items():
        own = [replace(scaled_run(paper, scale), name="") for paper in row.runs.values()]
        for name, paper in row.further_runs.items():
            assert replace(scaled_run(paper, scale), name="") not in own, f"{item}: {name}"


def test_a_further_run_keeps_the_papers_settings() -> None:
    run = scaled_run(PAPER, TINY)
    further = scaled_run(replace(PAPER, steps=2.0, learning_rate=0.5), TINY)
    assert further.steps == 2 * TINY.steps
    assert further.optimizer.learning_rate == TINY.learning_rate / 2
    assert replace(further, steps=run.steps, optimizer=run.optimizer, name=run.name) == run


def measured(losses: Mapping[str, float]) -> Measured:
    """Rows with a training loss near a value for three seeds."""
    return Measured(
        {
            row: {seed: {"training": {"training_loss": value * (1 + seed / 1e4)}} for seed in range(3)}
            for row, value in losses.items()
        }
    )


def finding(m: Measured) -> Iterator[Claim]:
    """That one row is better than another, and close to a third."""
    better, worse, other = map(m.training_loss, ("better", "worse", "other"))
    yield below("loss of better minus worse", better, worse)
    yield close("loss of better minus other", better, other, 0.1)


def judged(reason: Reason, *texts: Measured) -> dict[str, Any] | None:
    """A reason of the finding, which is about the item's own rows."""
    own = [replace(m, rows={row: m.rows[row] for row in m.rows if row in RUNS}) for m in texts]
    return reason.to_dict(finding, judge(finding, own)[1], texts)


@pytest.mark.parametrize(
    ("longer", "verdict"),
    [(1.5, "supported"), (2.5, "supported in part"), (3.5, "refuted")],
)
def test_a_claim_that_fails_is_judged_again_and_is_to_come_nearer_to_its_range(
    longer: float, verdict: str
) -> None:
    losses = {"better": 3.0, "worse": 2.0, "other": 3.0, twice("better"): longer, twice("worse"): 2.0}
    found = judged(too_few_steps("better", "worse")(RUNS), measured(losses))
    assert found is not None
    assert found["verdict"] == verdict
    change, again = found["claims"]
    again_text = "loss of better minus worse, in twice the steps"
    assert change["quantity"] == f"{again_text}: how much closer to the paper's claim"
    assert change["mean"] == pytest.approx(min(1.0, 3.0 - longer), abs=1e-3)
    assert again["quantity"] == again_text
    assert again["range"] == [None, 0.0]


def test_only_what_does_not_hold_is_judged_again() -> None:
    rows = ("better", "worse", "other")
    losses = {"better": 2.0, "worse": 3.0, "other": 1.0, **{twice(row): 2.0 + len(row) for row in rows}}
    found = judged(too_few_steps(*rows)(RUNS), measured(losses))
    assert found is not None
    change, again = found["claims"]
    assert again["quantity"].startswith("loss of better minus other")
    assert change["range"] == [0.0, None]
    assert judged(too_few_steps(*rows)(RUNS), measured({**losses, "other": 2.0})) is None


@pytest.mark.parametrize(
    ("longer", "nearer", "verdict"),
    [
        (1.05, 0.9, "supported"),
        (0.5, 0.5, "supported in part"),
        (-1.0, -1.0, "refuted"),
        (3.0, -1.0, "refuted"),
    ],
    ids=["into the range", "nearer on its other side", "farther on its other side", "away from it"],
)
def test_what_comes_nearer_to_its_range(longer: float, nearer: float, verdict: str) -> None:
    losses = {"better": 2.0, "worse": 3.0, "other": 1.0, twice("better"): longer, twice("other"): 1.0}
    found = judged(too_few_steps("better", "other")(RUNS), measured(losses))
    assert found is not None
    assert found["verdict"] == verdict
    assert found["claims"][0]["mean"] == pytest.approx(nearer, abs=1e-3)


@pytest.mark.parametrize(("other_rate", "verdict"), [(3.5, "refuted"), (3.05, "undecided")])
def test_a_rate_that_was_the_best_already_is_no_reason(other_rate: float, verdict: str) -> None:
    """The interval for the best of several rates is so wide that it decides nothing here."""
    reason = untuned_rate("better", "worse")(RUNS)
    m = measured({"worse": 3.0, **dict.fromkeys(reason.runs, 3.5)})
    spread = {
        row: {seed: {"training": {"training_loss": loss + 0.03 * (seed - 1)}} for seed in range(3)}
        for row, loss in (("better", 3.1), ("better, 2 times the learning rate", other_rate))
    }
    found = judged(reason, replace(m, rows={**m.rows, **spread}))
    assert found is not None
    assert found["verdict"] == verdict


def test_claims_about_rows_that_are_not_trained_otherwise_say_nothing() -> None:
    losses = {"better": 2.0, "worse": 3.0, "other": 1.0, twice("better"): 2.0, twice("worse"): 3.0}
    assert judged(too_few_steps("better", "worse")(RUNS), measured(losses)) is None


def test_what_cannot_be_judged_on_other_trainings_is_undecided() -> None:
    def never_longer(m: Measured) -> Iterator[Claim]:
        (claim,) = (claim for claim in finding(m) if claim.quantity.endswith("worse"))
        longer = claim.finite and claim.finite[0] < 0
        yield replace(claim, values={}, unjudged="not judged") if longer else claim

    losses = {"better": 3.0, "worse": 2.0, twice("better"): 1.0, twice("worse"): 2.0}
    reason, m = too_few_steps("better", "worse")(RUNS), measured(losses)
    found = reason.to_dict(never_longer, judge(never_longer, [m])[1], [m])
    assert found is not None
    (claim,) = found["claims"]
    assert claim["quantity"] == "loss of better minus worse, in twice the steps; not judged"
    assert (claim["mean"], claim["verdict"], found["verdict"]) == (None, "undecided", "undecided")


def test_only_a_reason_with_the_rows_of_what_failed_is_likely() -> None:
    m = measured({"better": 3.0, "worse": 2.0, "other": 3.0})
    failed = [claim for _, claim in judge(finding, [m])[1]]
    assert [claim.quantity for claim in failed] == ["loss of better minus worse"]
    assert too_few_steps("better", "worse")(RUNS).concerns(finding, failed, m)
    assert not too_few_steps("better", "other")(RUNS).concerns(finding, failed, m)
    assert not too_few_steps("better", "worse")(RUNS).concerns(finding, [], m)


def test_runs_of_likely_reasons_alone_are_trained(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["design-choices-table1"]
    decay, steps = experiment.reasons
    results = tmp_path / experiment.item / RESULTS
    results.parent.mkdir()
    for likely in ([], [steps], [decay, steps]):
        results.write_text(json.dumps({"likely_reasons": [reason.name for reason in likely]}))
        rows = {row for reason in likely for row in reason.runs}
        assert rows_to_explain(tmp_path, Plan(experiment, ())) == rows


@pytest.mark.parametrize(
    ("best_better", "best_worse", "verdict"),
    [(1.8, 2.5, "supported"), (2.5, 2.4, "supported in part"), (2.9, 2.0, "refuted")],
)
def test_each_row_has_its_best_rate(best_better: float, best_worse: float, verdict: str) -> None:
    reason = untuned_rate("better", "worse")(RUNS)
    best = {"better": best_better, "worse": best_worse}
    tried = {name: best[name.split(",")[0]] + ("0.5" in name) for name in reason.runs}
    found = judged(reason, measured({"better": 3.0, "worse": 2.6, "other": 3.0, **tried}))
    assert found is not None
    assert found["verdict"] == verdict
    assert found["claims"][1]["mean"] == pytest.approx(best_better - best_worse, abs=1e-3)


def test_the_best_of_several_rates_has_the_interval_of_as_many_choices() -> None:
    reason = untuned_rate("better", "worse")(RUNS)
    losses = {"better": 2.2, "worse": 2.0, "other": 2.2, **dict.fromkeys(reason.runs, 2.1)}
    found = judged(reason, measured(losses))
    assert found is not None
    assert {claim["chosen_from"] for claim in found["claims"]} == {3 * 3}


def test_rows_stay_as_they_are_beside_another_setting() -> None:
    reason = other_setting("too long", "--length=4", "better", beside=["worse"])(RUNS)
    losses = {"better": 3.0, "worse": 2.0, "other": 3.0, "better, length=4": 1.0}
    found = judged(reason, measured(losses))
    assert found is not None
    assert found["verdict"] == "supported"
    assert found["claims"][1]["mean"] == pytest.approx(-1.0, abs=1e-3)


def test_every_text_with_the_further_runs_counts() -> None:
    once = {"better": 3.0, "worse": 2.0, "other": 3.0}
    texts = [
        replace(measured({**once, twice("better"): longer, twice("worse"): 2.0}), text=text)
        for text, longer in (("one", 1.5), ("another", 3.5))
    ]
    reason = too_few_steps("better", "worse")(RUNS)
    found = judged(reason, *texts)
    assert found is not None
    assert [claim["text"] for claim in found["claims"]] == ["one", "one", "another", "another"]
    assert found["verdict"] == "supported in part"
    alone = judged(reason, texts[0], replace(measured(once), text="another"))
    assert alone is not None
    assert alone["verdict"] == "supported"
    held = replace(measured({**once, "better": 1.0, "other": 1.0}), text="another")
    of_failing = judged(reason, held, texts[0])
    assert of_failing is not None
    assert {claim["text"] for claim in of_failing["claims"]} == {"one"}


def test_a_finding_is_asked_about_the_items_rows_alone() -> None:
    """Not about the further ones too: some findings are about every row that there is."""

    def only_row(m: Measured) -> Iterator[Claim]:
        (row,) = m.rows
        yield Claim("loss", m.training_loss(row), high=2.0)

    once, all_rows = measured({"better": 3.0}), measured({"better": 3.0, twice("better"): 1.0})
    found = too_few_steps("better")(RUNS).to_dict(only_row, judge(only_row, [once])[1], [all_rows])
    assert found is not None
    assert found["verdict"] == "supported"
