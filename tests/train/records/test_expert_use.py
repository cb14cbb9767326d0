"""A step's statistics of the experts: by hand, over micro-batches, and as recorded."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loriini import DESIGNS, Routing
from loriini.train.records.expert_use import ExpertUse, add_totals, add_up, expert_metrics, expert_use

PER_EXPERT = ("load", "mean_gates", "activation_norms")


def routing(
    gates: list[list[float]], logits: list[list[float]] | None = None, valid: list[bool] | None = None
) -> Routing:
    counted: Tensor | None = None if valid is None else torch.tensor(valid)
    return Routing(torch.tensor(logits or gates), torch.tensor(gates), (1, len(gates)), counted)


def entropy(*weights: float) -> float:
    return round(-sum(w * math.log(w) for w in weights), 4)


EVEN = routing(
    [[0.25] * 4, [0.25] * 4, [0, 0, 0, 1.0]], [[0.0] * 4, [0.0] * 4, [9, 9, 0, 0]], valid=[True, True, False]
)
CHOSEN = routing(
    [[0.6, 0.4, 0, 0], [0.0, 0.45, 0.0, 0.55], [0, 0, 1.0, 0]],
    [[math.log(3), 0, -99, -99], [0, 2 * math.log(3), -99, 2 * math.log(3)], [9, 9, 9, 9]],
    valid=[True, True, False],
)


def measured_at_once(use: ExpertUse, design: str) -> dict[str, Any]:
    """The statistics of a step that is the only one since the last record of every expert."""
    return expert_metrics(use, DESIGNS[design], add_totals((), use, DESIGNS[design]))


def test_statistics_of_two_layers_by_hand() -> None:
    measured = measured_at_once(expert_use((EVEN, CHOSEN)), "mixtral")
    assert measured["mean_gates"] == [[0.25] * 4, [0.3, 0.425, 0.0, 0.275]]
    assert measured["gate_entropy"] == [
        round(math.log(4), 4),
        pytest.approx((entropy(0.6, 0.4) + entropy(0.45, 0.55)) / 2, abs=1e-4),
    ]
    confidence = (entropy(0.75, 0.25) + entropy(1 / 19, 9 / 19, 9 / 19)) / 2
    assert measured["confidence_entropy"] == [round(math.log(4), 4), pytest.approx(confidence, abs=1e-4)]
    assert measured["load"] == [[0.25] * 4, [0.25, 0.5, 0.0, 0.25]]
    assert measured["choices"] == [8, 4]
    assert measured["load_entropy"] == [round(math.log(4), 4), entropy(0.25, 0.5, 0.25)]
    assert measured["active"] == [0b1111, 0b1011]  # those that were chosen
    assert "activation_norms" not in measured


def test_where_every_expert_is_taken_the_load_is_the_weight() -> None:
    soft = routing([[0.7, 0.1, 0.1, 0.1], [0.5, 0.3, 0.1, 0.1]])
    measured = measured_at_once(expert_use((soft,)), "lory")
    assert measured["load"] == measured["mean_gates"] == [[0.6, 0.2, 0.1, 0.1]]
    assert measured["active"] == [0b0001]  # those with a gate above 2/4


def test_experts_that_score_themselves_show_their_norms() -> None:
    scored = routing([[0.6, 0.4], [0.0, 1.0]], [[1.5, 1.0], [0.5, 3.0]])
    assert measured_at_once(expert_use((scored,)), "aoe")["activation_norms"] == [[1.0, 2.0]]


def test_the_load_counts_all_choices_since_the_last_record() -> None:
    mixtral, first, second = DESIGNS["mixtral"], expert_use((EVEN, CHOSEN)), expert_use((EVEN, EVEN))
    both = add_totals(add_totals((), first, mixtral), second, mixtral)
    measured = expert_metrics(second, mixtral, both)
    assert measured["choices"] == [16, 12]
    assert measured["load"] == [[0.25] * 4, [0.25, 0.3333, 0.1667, 0.25]]
    assert measured["mean_gates"] == [[0.25] * 4] * 2  # of this step
    assert add_totals(((1.0,), (1.0,)), second, mixtral) == add_totals((), second, mixtral)  # other experts
    assert expert_metrics(second, mixtral).keys().isdisjoint(PER_EXPERT)


def test_micro_batches_count_by_their_units() -> None:
    rows = torch.rand(7, 4).softmax(-1).tolist()
    parts = [expert_use((routing(rows[:2]),)), expert_use((routing(rows[2:]),))]
    whole = measured_at_once(expert_use((routing(rows),)), "lory")
    together = measured_at_once(add_up(parts), "lory")
    assert together.keys() == whole.keys()
    for name, values in whole.items():
        torch.testing.assert_close(torch.tensor(together[name]), torch.tensor(values), rtol=0, atol=2e-4)
