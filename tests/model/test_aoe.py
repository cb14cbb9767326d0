"""Autonomy of Experts against a loop over tokens and experts that follows the paper, gradients included."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from loriini import DESIGNS, RoutingConfig
from loriini.model.mixture import Mixture
from loriini.routing.unit import RoutingContext, unit_layout
from tiny import tiny_model

B, L, E, K = 2, 7, 5, 2
Weights = dict[str, Tensor]


def by_top_k(norms_TE: list[list[float]]) -> list[list[int]]:
    """Each token's two experts of largest norm."""
    return [sorted(range(E), key=lambda i: -norms[i])[:K] for norms in norms_TE]


def by_top_p(norms_TE: list[list[float]]) -> list[list[int]]:
    """Each token's experts, from the largest norm down, until their softmax reaches 0.6."""
    chosen = []
    for norms in norms_TE:
        weights, reached, ids = torch.tensor(norms).softmax(0), 0.0, []
        for i in sorted(range(E), key=lambda i: -norms[i]):
            if reached < 0.6:
                ids.append(i)
            reached += weights[i].item()
        chosen.append(ids)
    return chosen


def by_expert_choice(norms_TE: list[list[float]]) -> list[list[int]]:
    """Each expert's tokens of largest norm, along T: 2 · T / E of them (AoE Q7)."""
    tokens, capacity = range(len(norms_TE)), round(2 * len(norms_TE) / E)
    takes = [sorted(tokens, key=lambda t: -norms_TE[t][i])[:capacity] for i in range(E)]
    return [[i for i in range(E) if t in takes[i]] for t in tokens]


def twin(x_TD: Tensor, w: Weights, select) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
    """Outputs (T, D), norms and gates (T, E): token by token, expert by expert (AoE equation 3)."""
    low = [[w["low_proj"][i] @ x for i in range(E)] for x in x_TD]
    norms = [[c.square().sum().sqrt() for c in of_token] for of_token in low]
    outputs, gates_TE = [], []
    for t, ids in enumerate(select([[n.item() for n in of_token] for of_token in norms])):
        y, gates = torch.zeros_like(x_TD[t]), [torch.zeros((), dtype=x_TD.dtype)] * E
        exponentials = {i: norms[t][i].exp() for i in ids}
        for i in ids:
            gates[i] = exponentials[i] / sum(exponentials.values())
            hidden = silu(w["gate_proj"][i] @ low[t][i]) * (w["up_proj"][i] @ x_TD[t])
            y = y + gates[i] * (w["down_proj"][i] @ hidden)
        outputs.append(y)
        gates_TE.append(torch.stack(gates))
    return torch.stack(outputs), torch.stack([torch.stack(n) for n in norms]), torch.stack(gates_TE)


SELECT = {"aoe": by_top_k, "aoe-top-p": by_top_p, "aoe-ec": by_expert_choice}


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
    select = SELECT[name] if training else by_top_k
    expected, norms, gates = twin(x_BLD.flatten(0, 1), weights, select)
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
