"""What weights are before training."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.model.weights.initialization import draw_weights
from loriini.routing import RoutingConfig
from loriini.routing.scorer import ScorerModule
from tiny import tiny_config, tiny_model

DEVIATION = 0.02


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
