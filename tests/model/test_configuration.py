import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig
from tiny import EVERY, over_blocks, tiny_config

aten = torch.ops.aten
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 8,
}


def held_by(config: LoriiniConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in LoriiniForCausalLM(config).parameters())


@pytest.mark.parametrize(("name", "block"), over_blocks(EVERY))
def test_parameters_of_every_design(name: str, block: str) -> None:
    config = tiny_config(name, block=block)
    total, active = config.parameters()
    assert total == held_by(config)
    assert active <= total


@pytest.mark.parametrize(
    ("block", "changes"),
    [
        ("llama", {"num_experts": 1}),
        ("gpt2", {"num_experts": 1}),
        ("llama", {"tie_word_embeddings": True}),
        ("gpt2", {"tie_word_embeddings": True}),
        ("llama", {"num_attention_heads": 4, "num_key_value_heads": 2}),
        ("olmoe", {"num_attention_heads": 4, "num_key_value_heads": 2}),
        ("phimoe", {"attention_bias": True, "lm_head_bias": True}),
        ("llama", {"attention_bias": True, "attention_out_bias": False, "num_key_value_heads": 1}),
        ("llama", {"qk_norm": "head", "head_dim": 6, "num_attention_heads": 3}),
        ("llama", {"qk_norm": "all", "num_key_value_heads": 1}),
    ],
    ids=str,
)
def test_parameters_of_other_sizes(block: str, changes: dict[str, int]) -> None:
    config = tiny_config("mixtral", block=block, **changes)
    total, active = config.parameters()
    assert total == held_by(config)
    assert active <= total


@pytest.mark.parametrize(
    ("name", "experts"),
    [
        ("lory", 1),
        ("smear", 1),
        ("switch", 1),
        ("mixtral", 2),
        ("ec-token", 1),
        ("token-ec2", 2),
        ("token-top-p", 4),
    ],
)
def test_active_experts(name: str, experts: int) -> None:
    config = tiny_config(name)
    assert config.experts_per_token == experts
    unused = (config.num_experts - experts) * config.num_hidden_layers * 3 * 16 * 24
    total, active = config.parameters()
    assert total - active == unused


def test_shared_experts_are_always_active() -> None:
    shared = replace(DESIGNS["mixtral"], num_shared_experts=2)
    counts = [tiny_config(design).parameters() for design in (shared, DESIGNS["mixtral"])]
    assert [a - b for a, b in zip(*counts, strict=True)] == [2 * 2 * 3 * 16 * 24] * 2
    assert tiny_config(shared).parameters()[0] == held_by(tiny_config(shared))


def test_flops_by_hand() -> None:
    config = tiny_config("lory", num_hidden_layers=1)
    ffn, attention, head, router = 3 * 16 * 24, 4 * 16 * 16, 61 * 16, 4 * 16
    norms = 3 * 16
    merging = ffn * 4 / 4
    expected = 6 * (ffn + attention + head + router / 4 + norms + 16 * 100 + merging)
    assert config.flops_per_token(100) == expected
    dense = tiny_config("lory", num_hidden_layers=1, num_experts=1)
    assert config.flops_per_token(100) - dense.flops_per_token(100) == 6 * (merging + router / 4)


def test_merging_for_whole_sequences_costs_less() -> None:
    ffn, router = 3 * 16 * 24, 4 * 16
    smear, dense = (tiny_config("smear", num_hidden_layers=1, num_experts=n) for n in (4, 1))
    difference = smear.flops_per_token(100) - dense.flops_per_token(100)
    assert difference == pytest.approx(6 * (ffn * 4 + router) / 100)


@pytest.mark.parametrize(("design", "routings"), [("mixtral", 100), ("lory", 100 / 4), ("sequence-top2", 1)])
def test_flops_of_routers_are_once_a_unit(design: str, routings: float) -> None:
    wide, narrow = (
        tiny_config(replace(DESIGNS[design], segment_length=4, scorer="mlp", scorer_width=width))
        for width in (7, 5)
    )
    more = wide.parameters_of_routers() - narrow.parameters_of_routers()
    assert wide.flops_per_token(100) - narrow.flops_per_token(100) == pytest.approx(6 * more * routings / 100)


def test_an_instance_shorter_than_a_segment_is_one_unit() -> None:
    lory, smear = (tiny_config(replace(DESIGNS[name], segment_length=8)) for name in ("lory", "smear"))
    assert lory.flops_per_token(5) == smear.flops_per_token(5)
    assert lory.flops_per_token(9) > smear.flops_per_token(9)


@pytest.mark.parametrize("width", [0, 5])
def test_parameters_of_an_mlp_scorer(width: int) -> None:
    design = RoutingConfig(scorer="mlp", scorer_width=width)
    config = tiny_config(design)
    assert config.parameters()[0] == held_by(config)
    linear = tiny_config(RoutingConfig()).parameters()[0] - 2 * 16 * 4
    assert config.parameters()[0] - linear == 2 * (width or 16) * (16 + 4)


def test_embedding_lookups_cost_no_flops() -> None:
    tied, untied = (
        tiny_config("dense", num_experts=1, block="gpt2", tie_word_embeddings=tie) for tie in (True, False)
    )
    assert tied.flops_per_token(8) == untied.flops_per_token(8)
    weights = tied.parameters()[1] - tied.max_position_embeddings * 16
    assert tied.flops_per_token(8) == 6 * (weights + 2 * 16 * 8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block": "gpt2", "routing": "aoe"}, "need experts with a gate, and block=gpt2 has none"),
        ({"block": "gpt2", "low_rank": 8}, "need experts with a gate, and block=gpt2 has none"),
        ({"dropout": 0.1}, "dropout is 0.1, but block=llama has none"),
        ({"block": "olmoe", "dropout": 0.1}, "dropout is 0.1, but block=olmoe has none"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu' and mlp_bias False; experts have SiLU and no biases"),
        ({"mlp_bias": True}, "hidden_act is 'silu' and mlp_bias True; .* leave both out"),
        ({"block": "gpt2", "hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"block": "gpt2", "attention_dropout": 0.5}, "attention_dropout is 0.5, .* block=gpt2"),
        ({"block": "olmoe", "head_dim": 6}, "head_dim is 6, but qk_norm=all needs heads of"),
        ({"block": "olmoe", "qk_norm": "head"}, "block=olmoe has qk_norm=all; use block=llama"),
        ({"block": "gpt2", "head_dim": 6}, "head_dim is 6, .* block=gpt2"),
        ({"block": "gpt2", "num_key_value_heads": 1}, "num_key_value_heads is 1, .* block=gpt2"),
        ({"block": "gpt2", "qk_norm": "head"}, "qk_norm is head, .* block=gpt2"),
        ({"head_dim": 7}, "a head is 7 wide; rotary positions need an even width"),
        (
            {"rope_parameters": {"rope_type": "spiral"}},
            "rope_type is 'spiral'; with block=llama it must be one of: default, linear",
        ),
        (
            {"block": "phimoe", "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
            "rope_type is 'linear'; with block=phimoe it must be one of: default, longrope",
        ),
        (
            {"block": "phimoe", "rope_parameters": {**LONGROPE, "short_mscale": 1.0}},
            "rope_type=longrope needs long_mscale",
        ),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type=yarn needs factor"),
        ({"rope_parameters": {"rope_theta": 0.0}}, r"rope_theta is 0\.0; it must be above 0"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            r"partial_rotary_factor is 0\.5; all of a head",
        ),
    ],
    ids=str,
)
def test_what_a_block_lacks_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tiny_config(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *(({name: 0}, name) for name in ("vocab_size", "num_experts", "low_rank", "max_position_embeddings")),
        *(({name: math.nan}, name) for name in ("rms_norm_eps", "initializer_range", "attention_dropout")),
        ({"dropout": 1.0, "block": "gpt2"}, "dropout"),
        ({"num_attention_heads": 3}, "num_attention_heads is 3; it must divide hidden_size, which is 16"),
        (
            {"num_key_value_heads": 3},
            "num_key_value_heads is 3; it must divide num_attention_heads, which is 2",
        ),
        ({"block": "bert"}, "block is 'bert'; it must be one of: llama, olmoe, phimoe, gpt2"),
    ],
    ids=str,
)
def test_fields_out_of_range_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tiny_config(**changes)


@pytest.mark.parametrize(
    ("block", "node"),
    [*(("llama", node) for node in ("low_rank", "gate", "up", "activated_gate", "hidden", "output"))]
    + [("gpt2", node) for node in ("up", "hidden", "output")],
)
def test_a_node_costs_every_expert_what_lies_below_it(block: str, node: str) -> None:
    """Against products counted in the layers of a model: two operations a weight and token."""
    design = replace(DESIGNS["aoe"], node=node)
    few, all_four = (tiny_config(replace(design, top_k=k), block=block) for k in (1, 4))
    operations = []
    for config in (few, all_four):
        model, ids = LoriiniForCausalLM(config).eval(), torch.full((1, 6), 5)
        with torch.no_grad(), CountedProducts() as counted:
            model(ids)
        operations.append(counted.weights / ids.numel())
    actives = [config.parameters()[1] for config in (few, all_four)]
    others = few.num_hidden_layers * (4 - 1)  # experts that are selected besides
    biases = others * few.hidden_size if block == "gpt2" and node != "output" else 0
    assert operations[1] - operations[0] == actives[1] - actives[0] - biases


class CountedProducts(TorchDispatchMode):
    """While inside, counts the weights by which rows are multiplied, but not the choice of a bias of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in (aten.mm, aten.bmm, aten.addmm, aten._grouped_mm):
            inner = args[func.overloadpacket == aten.addmm].shape[-1]
            self.weights += 0 if inner == 4 else out.numel() * inner
        return out


def test_designs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no design 'rory'; there are: dense, lory"):
        LoriiniConfig(routing="rory")
    with pytest.raises(ValueError, match="routing is 7; it must be a design's name or a table"):
        LoriiniConfig(routing=7)
    with pytest.raises(ValueError, match="routing has no field 'unti'; it has: unit, "):
        LoriiniConfig(routing={"unti": "token"})
    with pytest.raises(ValueError, match="rope_theta is nan"):
        LoriiniConfig(rope_theta=float("nan"))
    with pytest.raises(ValueError, match=r"routing\.top_k is 3; it must be at most num_experts, which is 2"):
        LoriiniConfig(num_experts=2, routing=RoutingConfig(selection="top_k", top_k=3, combination="outputs"))


@pytest.mark.parametrize("name", EVERY)
def test_json_round_trip(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = tiny_config(name)
    config.save_pretrained(tmp_path)
    loaded = LoriiniConfig.from_pretrained(tmp_path)
    assert loaded.routing == config.routing
    assert isinstance(loaded.routing, RoutingConfig)
    assert json.loads(loaded.to_json_string()) == json.loads(config.to_json_string())


def test_a_design_may_be_named_with_fields_that_differ() -> None:
    routing = LoriiniConfig(routing={"design": "mixtral", "top_k": 1}).routing
    assert routing == replace(DESIGNS["mixtral"], top_k=1)
