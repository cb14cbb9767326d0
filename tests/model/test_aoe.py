"""Autonomy of Experts against a loop over tokens and experts that follows the paper, gradients included."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from loriini import DESIGNS, RoutingConfig
from loriini.model.mixture import Mixture
from loriini.routing.selection import SELECTIONS
from loriini.routing.unit import RoutingContext, unit_layout
from tiny import tiny_model

B, L, E = 2, 7, 5
Weights = dict[str, Tensor]


def twin(x_TD: Tensor, w: Weights, design: RoutingConfig, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, D), norms and gates (T, E): token by token, each selected expert (AoE equation 3)."""
    low = [[w["low_proj"][i] @ x for i in range(E)] for x in x_TD]
    norms_TE = torch.stack([torch.stack([c.square().sum().sqrt() for c in of_token]) for of_token in low])
    outputs, gates_TE = [], []
    for t, chosen_E in enumerate(SELECTIONS[design.selection](norms_TE, design, None, training)):
        ids = chosen_E.nonzero().flatten().tolist()
        y, gates = torch.zeros_like(x_TD[t]), [torch.zeros((), dtype=x_TD.dtype)] * E
        exponentials = {i: norms_TE[t, i].exp() for i in ids}
        for i in ids:
            gates[i] = exponentials[i] / sum(exponentials.values())
            hidden = silu(w["gate_proj"][i] @ low[t][i]) * (w["up_proj"][i] @ x_TD[t])
            y = y + gates[i] * (w["down_proj"][i] @ hidden)
        outputs.append(y)
        gates_TE.append(torch.stack(gates))
    return torch.stack(outputs), norms_TE, torch.stack(gates_TE)


def layer_of(design: RoutingConfig) -> Mixture:
    return tiny_model(design, num_experts=E, low_rank=8).model.mixtures[0].double()


@pytest.mark.parametrize(
    ("name", "training"), [("aoe", True), ("aoe-top-p", True), ("aoe-ec", True), ("aoe-ec", False)]
)
def test_a_layer_equals_its_definition_with_gradients(name: str, training: bool) -> None:
    layer = layer_of(DESIGNS[name]).train(training)
    x_BLD = torch.randn(B, L, 16, dtype=torch.float64, requires_grad=True)
    weights = layer.experts.stacked()
    context = RoutingContext(B, L)
    y, routing = layer(x_BLD, context, unit_layout(layer.config.routing, context))
    expected, norms, gates = twin(x_BLD.flatten(0, 1), weights, layer.config.routing, training)
    torch.testing.assert_close(y.flatten(0, 1), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(routing.logits, norms.float())
    torch.testing.assert_close(routing.gates, gates.float())
    assert routing.gates.gt(0).any(1).all() or name == "aoe-ec"
    probe = torch.randn_like(expected)
    inputs = [x_BLD, *weights.values()]
    found = torch.autograd.grad((y.flatten(0, 1) * probe).sum(), inputs)
    wanted = torch.autograd.grad((expected * probe).sum(), inputs)
    for actual, gradient in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-4, atol=1e-5)
