"""Pairs of units and experts whose number is fixed, against those found by reading the gates."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from covering import grid
from loriini import DESIGNS
from loriini.model.experts.stacked import SwigluExperts, by_outputs_loop
from loriini.routing.selection import FixedCounts, fixed_counts
from tiny import random_ids, tiny_model

N, E, K, C = 7, 5, 2, 3


def gates_of(counts: FixedCounts) -> Tensor:
    """Gates (N, E) of K experts a unit, or of C units an expert."""
    scores = torch.rand(N, E, dtype=torch.float64) + 0.1
    count, dim = (counts.per_unit, 1) if counts.per_unit else (counts.per_expert, 0)
    chosen = scores.topk(count, dim=dim)
    return torch.zeros_like(scores).scatter(dim, chosen.indices, chosen.values)


@grid(
    counts=[FixedCounts(K, None), FixedCounts(1, None), FixedCounts(E, None), FixedCounts(None, C)],
    slots=[0, 1, 4],
)
def test_a_fixed_number_of_pairs_changes_nothing(counts: FixedCounts, slots: int) -> None:
    experts = SwigluExperts(E, 8, 12).double()
    for weight in experts.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    gates = gates_of(counts).requires_grad_()
    x = torch.randn(N, *([slots] if slots else []), 8, dtype=torch.float64, requires_grad=True)
    inputs, probe = [x, gates, *experts.parameters()], torch.randn_like(x)
    found = experts.by_outputs(x, gates, {}, counts)
    read, naive = experts.by_outputs(x, gates), by_outputs_loop(experts, x, gates * (gates > 0))
    wanted = torch.autograd.grad((naive * probe).sum(), inputs)
    for y in (found, read):
        torch.testing.assert_close(y, naive)
        for actual, gradient in zip(torch.autograd.grad((y * probe).sum(), inputs), wanted, strict=True):
            torch.testing.assert_close(actual, gradient)


def test_units_without_experts_get_zeros() -> None:
    experts, x = SwigluExperts(E, 8, 12).double(), torch.randn(N, 8, dtype=torch.float64)
    for weight in experts.parameters():
        torch.nn.init.normal_(weight)
    gates = gates_of(FixedCounts(K))
    gates[3] = 0
    y = experts.by_outputs(x, gates, {}, FixedCounts(K))
    assert not y[3].any()
    torch.testing.assert_close(y, by_outputs_loop(experts, x, gates))


DESIGNS_BY_COUNT = {
    "mixtral": FixedCounts(per_unit=2),
    "sequence-top1": FixedCounts(per_unit=1),
    "ec-segment": FixedCounts(per_expert=2),
}


@pytest.mark.parametrize("name", DESIGNS_BY_COUNT)
def test_a_fixed_design_reads_no_gates_in_training(name: str) -> None:
    design = replace(DESIGNS[name], segment_length=4)
    units = {"token": 24, "segment": 6, "sequence": 2}[design.unit]
    assert fixed_counts(design, units, 4, training=True, padded=False) == DESIGNS_BY_COUNT[name]
    model, ids = tiny_model(name, num_hidden_layers=1).train(), random_ids(2, 12)
    with patch.object(Tensor, "nonzero", side_effect=AssertionError("reads the gates")):
        model(ids, labels=ids).loss.backward()


def test_whole_units_move() -> None:
    model, ids = tiny_model("ec-segment", num_hidden_layers=1).train(), random_ids(2, 12)
    moved: list[torch.Size] = []
    original = type(model.model.mixtures[0].experts).by_outputs

    def note(experts: Any, x: Tensor, *arguments: Any) -> Tensor:
        moved.append(x.shape)
        return original(experts, x, *arguments)

    with patch.object(SwigluExperts, "by_outputs", note):
        model(ids)
        model(ids, attention_mask=(torch.arange(12) > 1).expand(2, -1).long())  # padded: token by token
    assert moved == [(6, 4, 16), (24, 16)]
