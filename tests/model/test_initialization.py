"""What weights are before training."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.model.weights import initialization
from loriini.model.weights.initialization import draw_weights, expert_factors
from loriini.routing import RoutingConfig
from loriini.routing.scorer import ScorerModule
from tiny import tiny_config, tiny_model

DEVIATION, SEEDS = 0.02, range(3)


@pytest.mark.parametrize(("d", "f", "r"), [(64, 176, 8), (64, 176, 24), (192, 512, 64), (96, 256, 96)])
def test_factorized_gate_projections_start_with_the_deviation_of_full_ones(d: int, f: int, r: int) -> None:
    sizes = {"hidden_size": d, "intermediate_size": f, "low_rank": r, "num_hidden_layers": 1}
    model = tiny_model("aoe", **sizes, initializer_range=DEVIATION, expert_scale="initializer")
    experts = model.model.mixtures[0].experts
    gate_EFD = experts.gate_proj @ experts.low_proj
    assert gate_EFD.std().item() == pytest.approx(DEVIATION, rel=0.05)
    assert experts.low_proj.std().item() == pytest.approx(experts.gate_proj.std().item(), rel=0.1)
    for full in (experts.up_proj, experts.down_proj):
        assert full.std().item() == pytest.approx(DEVIATION, rel=0.05)


def test_what_gpt2_adds_to_the_residual_stream_starts_smaller() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 8}
    layer = tiny_model(
        "lory", block="gpt2", **sizes, initializer_range=DEVIATION, expert_scale="initializer"
    ).model.layers[3]
    attention, experts = layer.self_attn, layer.mlp.experts
    for smaller in (attention.c_proj.weight, experts.down_proj):
        assert smaller.std().item() == pytest.approx(DEVIATION / 16**0.5, rel=0.05)
    for full in (attention.c_attn.weight, experts.up_proj):
        assert full.std().item() == pytest.approx(DEVIATION, rel=0.05)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [(replace(DESIGNS["deepseek-v3"], balance_bias=0.0), DESIGNS["deepseek-v3"]), ("mixtral", "random")],
)
def test_buffers_that_a_checkpoint_lacks_start_at_zero(
    saved: str | RoutingConfig, loaded: str | RoutingConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model(saved).save_pretrained(tmp_path)
    memory = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *x, **named: memory(*x, **named).fill_(7))
    model = LoriiniForCausalLM.from_pretrained(tmp_path, routing=loaded)
    buffers = {
        name: buffer for name, buffer in model.named_buffers() if "bias" in name or "router_seed" in name
    }
    assert buffers
    assert not any(buffer.any() for buffer in buffers.values())


class Cosine(ScorerModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.temperature = nn.Parameter(torch.zeros(4, 16)), nn.Parameter(torch.full((1,), 10.0))


def test_a_scorers_vectors_keep_the_values_of_its_constructor() -> None:
    scorer = Cosine()
    draw_weights(scorer, tiny_config(initializer_range=DEVIATION))
    assert scorer.temperature.tolist() == [10.0]
    assert scorer.weight.std().item() == pytest.approx(DEVIATION, rel=0.3)


def branch_rms(design: str, seed: int, **changes: Any) -> float:
    """The root mean square of what the FFNs of a new model add, over layers, on random tokens.

    All have the same active size.
    """
    torch.manual_seed(seed)
    experts = 1 if design == "dense" else 8
    width = round(176 / DESIGNS[design].active_ffns(experts))
    sizes = {"hidden_size": 64, "intermediate_size": width, "num_hidden_layers": 2, "vocab_size": 4096}
    model = tiny_model(design, num_experts=experts, **sizes, initializer_range=DEVIATION, **changes).train()
    added: list[Tensor] = []
    for mixture in model.model.mixtures:
        mixture.register_forward_hook(lambda *call: added.append(call[-1][0].detach()))
    tokens = torch.randint(4096, (8, 256))
    labels = torch.arange(8) if model.config.routed_by_label else None
    with torch.no_grad():
        model.model(tokens, routing_labels=labels)
    return torch.stack(added).square().mean().sqrt().item()


@cache
def dense_rms(block: str = "llama") -> float:
    return fmean(branch_rms("dense", seed, block=block) for seed in SEEDS)


def relative_rms(design: str, block: str = "llama", **changes: Any) -> float:
    of_design = fmean(branch_rms(design, seed, block=block, **changes) for seed in SEEDS)
    return of_design / dense_rms(block)


@pytest.mark.parametrize("design", [name for name in DESIGNS if name != "dense"])
def test_experts_start_at_the_dense_models_scale(design: str) -> None:
    assert relative_rms(design) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("design", ["lory", "mixtral", "switch", "ec-token", "deepseek-v3", "relu"])
def test_copies_start_at_the_dense_models_scale(design: str) -> None:
    assert relative_rms(design, expert_scale="copies") == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("design", ["lory", "deepseek-v3"])
def test_gpt2_blocks_start_at_the_dense_models_scale(design: str) -> None:
    assert relative_rms(design, "gpt2") == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("design", "rms"), [("lory", 8**-1.5), ("mixtral", 1 / 2), ("switch", 1 / 8)])
def test_experts_drawn_by_the_initializer_are_smaller_together(design: str, rms: float) -> None:
    assert relative_rms(design, expert_scale="initializer") == pytest.approx(rms, rel=0.1)


def test_copies_are_equal_and_loaded_weights_are_kept(tmp_path: Path) -> None:
    model = tiny_model("lory", expert_scale="copies")
    experts = model.model.mixtures[0].experts
    for weight in experts.stacked().values():
        assert torch.equal(weight, weight[:1].expand_as(weight))
    with torch.no_grad():
        experts.up_proj.normal_()
    model.save_pretrained(tmp_path)
    loaded = LoriiniForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.expert_scale == "copies"
    assert torch.equal(loaded.model.mixtures[0].experts.up_proj, experts.up_proj)


def test_measuring_gates_draws_no_random_number_of_the_caller() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    initialization.gate_power.cache_clear()
    expert_factors(tiny_config())
    assert torch.equal(torch.rand(3), expected)
