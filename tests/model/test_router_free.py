"""Pretrained mixtures without their routers: activations rank the experts, at the cost of their node."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from covering import grid
from loriini import LoriiniForCausalLM
from loriini.model.weights.conversion import router_free
from loriini.model.weights.pretrained import from_transformers
from model.families import MIXTURES, TINY_FAMILIES
from tiny import CLOSE, random_ids, tiny_model

NODES = ["gate", "up", "activated_gate", "hidden", "output"]
NORMS = [1, 2, "inf"]


def router_free_twin(
    x_MD: Tensor,
    gate_proj: Tensor,
    up_proj: Tensor,
    down: Tensor,
    node: str,
    norm: float,
    k: int,
    uniform: bool,
) -> tuple[Tensor, Tensor]:
    """Output (M, D) and gates (M, E) by a loop over tokens and experts."""
    outputs, all_gates = [], []
    for x in x_MD:
        computed = []
        for gate, up, out in zip(gate_proj, up_proj, down, strict=True):
            g, u = gate @ x, up @ x
            h = silu(g) * u
            computed.append({"gate": g, "up": u, "activated_gate": silu(g), "hidden": h, "output": out @ h})
        norms = torch.stack([torch.linalg.vector_norm(nodes[node], norm) for nodes in computed])
        chosen = norms.topk(k).indices
        weights = norms.new_full((k,), 1 / k) if uniform else norms[chosen].softmax(0)
        gates = torch.zeros_like(norms).scatter(0, chosen, weights)
        outputs.append(sum(gates[i] * computed[i]["output"] for i in chosen.tolist()))
        all_gates.append(gates)
    return torch.stack(outputs), torch.stack(all_gates)


@grid(family=MIXTURES, node=NODES, norm=NORMS, gates=["softmax_selected", "uniform"])
def test_activations_choose_as_in_the_naive_twin(family: str, node: str, norm: int | str, gates: str) -> None:
    model, ids = from_transformers(TINY_FAMILIES[family]()).double(), random_ids()
    seen: dict[str, Tensor] = {}
    layer = model.model.mixtures[0]
    layer.register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], y=output[0]))
    routing = router_free(model, node, norm, gates)(ids).routings[0]
    x, experts = seen["x"].flatten(0, 1), layer.experts
    k, uniform = model.config.routing.top_k, gates == "uniform"
    weights = list(experts.stacked().values())
    y, expected = router_free_twin(x, *weights, node, float(norm), k, uniform)
    torch.testing.assert_close(routing.gates.double(), expected, **CLOSE)
    torch.testing.assert_close(seen["y"].flatten(0, 1), y, **CLOSE)
    found = torch.autograd.grad(seen["y"].square().sum(), weights, retain_graph=True)
    wanted = torch.autograd.grad(y.square().sum(), weights)
    for actual, gradient in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-3, atol=1e-3)


def test_router_free_keeps_the_experts_and_survives_saving(tmp_path: Path) -> None:
    mixtral, ids = TINY_FAMILIES["mixtral"](), random_ids()
    model = router_free(from_transformers(mixtral), "output", "inf", gates="uniform")
    for layer, theirs in zip(model.model.mixtures, mixtral.model.layers, strict=True):
        assert torch.equal(layer.experts.down_proj, theirs.mlp.experts.down_proj)
    assert not any(".router." in name for name in model.state_dict())
    assert set(model(ids).routings[0].gates.unique().tolist()) == {0.0, 0.5}
    model.save_pretrained(tmp_path)
    assert torch.equal(LoriiniForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("model", "node", "norm", "named"),
    [
        (("mixtral", "llama", 4), "low_rank", 2, "low_rank|factorised"),
        (("mixtral", "llama", 4), "middle", 2, "routing.node is 'middle'"),
        (("mixtral", "llama", 4), "hidden", 3, "routing.norm is 3"),
        (("mixtral", "gpt2", 4), "gate", 2, "gate"),
        (("lory", "llama", 4), "hidden", 2, "unit=token"),
        (("relu", "llama", 4), "hidden", 2, "norm"),
        (("mixtral", "llama", 1), "gate", 2, "dense"),
    ],
)
def test_router_free_refuses_what_does_not_fit(
    model: tuple[str, str, int], node: str, norm: int, named: str
) -> None:
    design, block, experts = model
    with pytest.raises(ValueError, match=named):
        router_free(tiny_model(design, block=block, num_experts=experts), node, norm)


def test_a_balancing_bias_goes_with_the_router() -> None:
    assert router_free(tiny_model("deepseek-v3"), "hidden").config.routing.balance_bias == 0
