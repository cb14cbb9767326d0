import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loriini import Routing
from loriini.routing import DESIGNS, stats
from loriini.routing.selection import GATES, SELECTIONS

STATISTICS = (stats.count_units, stats.choices, stats.mean_gates, stats.gate_entropy, stats.active_experts)


def test_statistics_by_hand() -> None:
    gates = torch.tensor([[0.75, 0.25, 0.0, 0.0], [0.4, 0.0, 0.6, 0.0]])
    routing = Routing(gates - 1, gates, (1, 2))
    assert stats.choices(routing).tolist() == [2.0, 1.0, 1.0, 0.0]
    assert stats.shares(stats.choices(routing)).tolist() == [0.5, 0.25, 0.25, 0.0]
    assert stats.mean_gates(routing).tolist() == pytest.approx([0.575, 0.125, 0.3, 0.0])
    assert stats.active_experts(routing).tolist() == [True, False, True, False]
    assert stats.count_units(routing).item() == 2
    entropies = [sum(-g * math.log(g) for g in row if g) for row in gates.tolist()]
    assert stats.gate_entropy(routing).item() == pytest.approx(sum(entropies) / 2)
    assert stats.shares(torch.zeros(4)).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ["switch", "sequence-top1", "ec-token", "relu", "deepseek-v3", "lory"])
def test_the_gates_entropy_counts_experts_whatever_the_gates_sum_to(name: str) -> None:
    """It is 0 where each unit chose one expert, and at most the logarithm of how many it chose."""
    torch.manual_seed(0)
    design, logits = DESIGNS[name], 9 * torch.randn(32, 8)
    mask = SELECTIONS[design.selection](logits, design, None, False)
    gates = GATES[design.gates](logits, mask, design)
    chosen = mask.sum(-1).float()
    found = stats.gate_entropy(Routing(logits, gates, (2, 16))).item()
    assert -1e-6 <= found <= chosen.clamp(min=1).log().mean().item() + 1e-6
    assert found > 0 or chosen.max() == 1


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda statistic: statistic.__name__)
def test_padding_is_left_out(statistic: Callable[[Routing], Tensor]) -> None:
    valid = torch.tensor([True, False, True, True, False, True])
    logits, gates = torch.randn(6, 4), torch.rand(6, 4).mul(0.4).round(decimals=1)
    gates[~valid] = 1.0  # would make every expert active
    padded = statistic(Routing(logits, gates, (1, 6), valid))
    torch.testing.assert_close(padded, statistic(Routing(logits[valid], gates[valid], (1, 4))))
