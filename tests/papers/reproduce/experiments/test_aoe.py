"""Claims of AoE's items, on measurements made up by hand."""

from typing import Any

import numpy as np
import pytest

from loriini.papers.reproduce.claim import FAILS, HOLDS, UNDECIDED, Claim
from loriini.papers.reproduce.experiments.aoe import BY_L2, best_node, norms_alike
from loriini.papers.reproduce.measured import Measured


def right(accuracy: float) -> dict[str, Any]:
    return {"right": {"web": [accuracy] * 2}}


def measured(routed: float, node: float, best_row: str = "output") -> Measured:
    """A mixture's rows: `best_row` has the lowest loss and accuracy `node`, other nodes are luckier."""

    def of_row(row: str, off: float) -> dict[str, Any]:
        best = row == best_row
        accuracy = routed + off if row == "router" else node + off if best else 0.99
        return {
            "heldout": {"instance_losses": {"web": [2.0 if best else 3.0] * 2}},
            "questions": right(accuracy),
        }

    offs = dict(enumerate((-0.005, 0.0, 0.005)))
    return Measured({row: {seed: of_row(row, off) for seed, off in offs.items()} for row in BY_L2})


def kept(routed: float, node: float) -> Claim:
    """The claim about accuracy."""
    accuracy, other_models, computed = best_node(measured(routed, node))
    assert "node of the lowest loss, output" in accuracy.quantity
    assert computed.judged() == HOLDS
    assert other_models.judged() == UNDECIDED
    return accuracy


@pytest.mark.parametrize(("routed", "node", "verdict"), [(0.6, 0.55, HOLDS), (0.6, 0.3, FAILS)])
def test_what_is_kept_is_the_accuracy_above_chance(routed: float, node: float, verdict: str) -> None:
    claim = kept(routed, node)
    assert claim.judged() == verdict
    assert claim.values[1] == pytest.approx((node - 0.25) / (routed - 0.25))


def test_nothing_is_decided_by_a_model_that_guesses() -> None:
    """An accuracy of 0.25 at a node would be 96 % of that with routers."""
    assert kept(0.26, 0.25).judged() == UNDECIDED
    assert not kept(0.26, 0.25).values
    assert "with routers it is not clearly above chance" in kept(0.26, 0.25).quantity


@pytest.mark.parametrize(
    ("start", "end", "verdict"), [(0.6, 0.9, HOLDS), (0.9, 0.6, FAILS), (0.75, 0.75, UNDECIDED)]
)
def test_norms_catch_up_only_where_they_are_more_alike_at_the_end(
    start: float, end: float, verdict: str
) -> None:
    """The lowest over the highest of a layer's two norms goes from `start` to `end` in 20 records."""
    lowest = np.linspace(start, end, 20).tolist()
    norms = {"norms": {"tokens": list(range(20)), "values": [[[low, 1.0]] for low in lowest]}}
    seeds = {seed: {"training": norms} for seed in range(3)}
    *_, catches_up = norms_alike(Measured(dict.fromkeys(("9 AoE 256", "10 AoE 256 + aux"), seeds)))
    assert catches_up.judged() == verdict
