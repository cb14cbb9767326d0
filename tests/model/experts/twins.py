"""Naive twins of the experts' fast paths."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from loriini.model.experts.stacked import Experts, FactorizedExperts, GeluExperts, SwigluExperts


def linear_by_unit_twin(x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
    """The naive twin of `linear_by_unit`: one product a unit."""
    return torch.stack([linear(x_SD.to(w.dtype), w) for x_SD, w in zip(x_NSD, weight_NOD, strict=True)])


def by_parameters_loop(experts: Experts, x_NSD: Tensor, gates_NE: Tensor, *_: Any) -> Tensor:
    """The naive twin of `by_parameters`: merges one FFN at a time, expert by expert."""
    outputs = []
    for x_SD, gates_E in zip(x_NSD, gates_NE, strict=True):
        merged = {
            name: torch.stack([e * w for e, w in zip(gates_E, weight, strict=True)]).sum(0)
            for name, weight in experts.stacked().items()
        }
        outputs.append(experts.ffn(x_SD, merged, linear))
    return torch.stack(outputs)


def by_outputs_loop(experts: Experts, x: Tensor, gates_NE: Tensor, *_: Any) -> Tensor:
    """The naive twin of `by_outputs`: every expert computes every unit, from the beginning."""
    gates_EN = gates_NE.T.reshape(-1, x.shape[0], *(1 for _ in x.shape[1:]))
    return torch.stack([gates_EN[i] * experts.of_expert(i, x) for i in range(experts.num_experts)]).sum(0)


def use_twins(patch: pytest.MonkeyPatch) -> None:
    """Let experts of every kind compute by their twins."""
    for kind in (SwigluExperts, GeluExperts, FactorizedExperts):
        patch.setattr(kind, "by_outputs", by_outputs_loop)
        patch.setattr(kind, "by_parameters", by_parameters_loop)
