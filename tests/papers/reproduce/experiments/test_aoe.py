"""Claims about experts without routers, on measurements made up by hand."""

from typing import Any

import pytest

from loriini.papers.published.items.aoe import NODES
from loriini.papers.reproduce.claims.claim import FAILS, HOLDS, UNDECIDED, Claim
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.experiments.aoe import at_node, best_is, best_node, questions_at_node
from loriini.papers.reproduce.experiments.likely_reasons import REASONS, twice

SECONDS = {row: [2.0, 2.02, 1.98] for row in NODES} | {"router": [1.0, 1.0, 1.01]}


def right(accuracy: float) -> dict[str, Any]:
    return {"right": {"web": [accuracy] * 2}}


def model(routed: float, node: float, best_row: str = "output") -> dict[int, dict[str, Any]]:
    """A mixture by seed: `best_row` has the lowest loss and accuracy `node`, other nodes are luckier."""
    seeds: dict[int, dict[str, Any]] = {}
    for seed, off in enumerate((-0.005, 0.0, 0.005)):
        measures = seeds[seed] = {"questions": right(routed + off)}
        for row in NODES:
            best = row == best_row
            measures[at_node(row, "2")] = {"instance_losses": {"web": [2.0 if best else 3.0] * 2}}
            measures[questions_at_node(row)] = right(node + off if best else 0.99)
    return seeds


def kept(routed: float, node: float) -> Claim:
    """The claim about accuracy."""
    m = Measured({"router": model(routed, node)}, extra={"seconds": SECONDS})
    accuracy, other_models, seconds = best_node(m)
    assert list(best_is(m)) == ["the node of the lowest loss is output"]
    assert seconds.verdict == HOLDS
    assert other_models.verdict == UNDECIDED
    return accuracy


@pytest.mark.parametrize(("routed", "node", "verdict"), [(0.6, 0.55, HOLDS), (0.6, 0.3, FAILS)])
def test_what_is_kept_is_the_accuracy_above_chance(routed: float, node: float, verdict: str) -> None:
    claim = kept(routed, node)
    assert claim.verdict == verdict
    assert claim.values[1] == pytest.approx((node - 0.25) / (routed - 0.25))


def test_nothing_is_decided_by_a_model_that_guesses() -> None:
    """An accuracy of 0.25 at a node would be 96 % of that with routers."""
    assert kept(0.26, 0.25).verdict == UNDECIDED
    assert not kept(0.26, 0.25).values
    assert "with routers it is not clearly above chance" in kept(0.26, 0.25).to_dict()["quantity"]


def test_a_reason_is_judged_where_another_node_is_the_best_in_its_trainings() -> None:
    (reason,) = REASONS["aoe-table1"]
    rows = {
        "router": model(0.6, 0.3),
        **{row: {0: {}} for row in reason.runs},
        twice("router"): model(0.6, 0.55, "xW_g"),
    }
    m = Measured(rows, extra={"seconds": SECONDS})
    before = [claim for claim in best_node(m) if claim.verdict == FAILS]
    assert [claim.verdict for claim in reason.claims(best_node, before, m)] == [HOLDS, HOLDS]
