import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from covering import one_of_each
from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig
from loriini.model.block import BLOCKS
from loriini.model.configuration import resolve_routing
from loriini.train.config import ModelShape
from tiny import EVERY, over_blocks, random_ids, tiny_config

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


@one_of_each(design=["dense", "lory", "mixtral", "deepseek-v3"], block=list(BLOCKS))
def test_parameters_by_where_they_are(design: str, block: str) -> None:
    experts = 1 if design == "dense" else 4
    config = tiny_config(design, block=block, num_experts=experts, lm_head_bias=block == "phimoe")
    with torch.device("meta"):
        model = LoriiniForCausalLM(config)
    numbers = {name: p.numel() for name, p in model.named_parameters()}
    sizes = config.sizes()
    assert sizes.experts == sum(n for name, n in numbers.items() if ".experts." in name)
    assert sizes.root == sum(n for name, n in numbers.items() if ".layers." not in name)
    assert sizes.experts + sizes.layers + sizes.root == sum(numbers.values())


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
    more = wide.sizes().routers - narrow.sizes().routers
    assert wide.flops_per_token(100) - narrow.flops_per_token(100) == pytest.approx(6 * more * routings / 100)


def test_embedding_lookups_cost_no_flops() -> None:
    tied, untied = (
        tiny_config("dense", num_experts=1, block="gpt2", tie_word_embeddings=tie) for tie in (True, False)
    )
    assert tied.flops_per_token(8) == untied.flops_per_token(8)
    weights = tied.parameters()[1] - tied.max_position_embeddings * 16
    assert tied.flops_per_token(8) == 6 * (weights + 2 * 16 * 8)


GPT2, PHIMOE = {"block": "gpt2"}, {"block": "phimoe"}
PART, ROTATING_ALL = {"partial_rotary_factor": 0.5}, [GPT2, {"qk_norm": "all"}]
YARN, LINEAR = {"rope_type": "yarn"}, {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        *((name, {name: 0}) for name in ("vocab_size", "num_experts", "low_rank", "max_position_embeddings")),
        *((name, {name: math.nan}) for name in ("rms_norm_eps", "initializer_range", "attention_dropout")),
        *((name, {name: 3}) for name in ("num_attention_heads", "num_key_value_heads")),
        ("block", {"block": "bert"}),
        ("gate", {**GPT2, "routing": "aoe"}),
        ("gate", {**GPT2, "low_rank": 8}),
        ("dropout", {**GPT2, "dropout": 1.0}),
        ("dropout", {"dropout": 0.1}),
        ("attention_dropout", {**GPT2, "attention_dropout": 0.5}),
        ("hidden_act", {"hidden_act": "relu"}),
        ("mlp_bias", {"mlp_bias": True}),
        ("head_dim", {"qk_norm": "all", "head_dim": 6}),
        ("head_dim", {**GPT2, "head_dim": 6}),
        ("even", {"head_dim": 7}),
        ("qk_norm", {**GPT2, "qk_norm": "head"}),
        ("num_key_value_heads", {**GPT2, "num_key_value_heads": 1}),
        ("rope_type", {"rope_parameters": {"rope_type": "spiral"}}),
        ("rope_type", {**PHIMOE, "rope_parameters": LINEAR}),
        ("block=gpt2", {"block": "gpt2", "rope_parameters": LINEAR}),
        ("long_mscale", {**PHIMOE, "rope_parameters": {**LONGROPE, "short_mscale": 1.0}}),
        ("factor", {"rope_parameters": YARN}),
        ("rope_theta", {"rope_parameters": {"rope_theta": 0.0}}),
        *(("partial_rotary_factor", {**block, "rope_parameters": PART}) for block in ROTATING_ALL),
        *(("partial_rotary_factor", {"partial_rotary_factor": part}) for part in (0.1, 0.4, 1.5, 0, "0.5")),
        ("factor", {"rope_scaling": {**LINEAR, "factor": -3.0}}),  # by older names
        ("rope_type", {"rope_scaling": {"rope_type": "yarm"}}),
        ("rope_type", {**PHIMOE, "rope_scaling": {"type": "yarn", "factor": 2.0}}),
        ("rope_theta", {"rope_theta": -1.0}),
        ("rory", {"routing": "rory"}),
        ("routing is 7", {"routing": 7}),
        ("unti", {"routing": {"unti": "token"}}),
        (r"routing\.top_k", {"num_experts": 2, "routing": replace(DESIGNS["mixtral"], top_k=3)}),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(named: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=named):
        LoriiniConfig(**{"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, **changes})


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("num_expert", "do you mean num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_experts_per_tok", "routing's top_k"),
        ("router_aux_loss_coef", "routing's load_balance"),
        ("norm_topk_prob", "routing's gates"),
        *((name, "routing=replace") for name in ("top_k", "segment_length", "load_balance")),
    ],
)
def test_settings_of_other_names_are_refused_with_their_names_here(name: str, remedy: str) -> None:
    with pytest.raises(TypeError, match=f"{name}.*{remedy}"):
        LoriiniConfig(routing="mixtral", **{name: 1})


def test_settings_of_other_libraries_are_kept() -> None:
    assert LoriiniConfig(rope_theta=500.0, torch_dtype="float32", something_else=1).something_else == 1


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
        model, ids = LoriiniForCausalLM(config).double().eval(), torch.full((1, 6), 5)
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            model(ids)
        operations.append(counted.get_total_flops() / 2 / ids.numel())
    actives = [config.parameters()[1] for config in (few, all_four)]
    others = few.num_hidden_layers * (4 - 1)  # experts that are selected besides
    chosen = few.num_experts - 1 if block == "gpt2" and node != "output" else 0  # by a product with all gates
    assert operations[1] - operations[0] == actives[1] - actives[0] + chosen * others * few.hidden_size


def test_routing_may_be_a_design_its_json_object_or_its_name() -> None:
    design = DESIGNS["mixtral"]
    for routing in (design, design.to_dict(), "mixtral", {"design": "mixtral"}):
        assert LoriiniConfig(routing=routing).routing == design
    assert LoriiniConfig(routing={"design": "mixtral", "top_k": 1}).routing == replace(design, top_k=1)
    assert resolve_routing({}) == RoutingConfig()


def test_settings_that_are_changed_later_are_checked_too(tmp_path: Path) -> None:
    """As `from_pretrained` does with its keyword arguments."""
    LoriiniConfig(hidden_size=16, num_attention_heads=2).save_pretrained(tmp_path)
    for routing in ("mixtral", DESIGNS["mixtral"].to_dict(), {"design": "mixtral"}):
        assert LoriiniConfig.from_pretrained(tmp_path, routing=routing).routing == DESIGNS["mixtral"]
    for changes in ({"block": "gpt3"}, {"rope_parameters": {"rope_theta": -1.0}}):
        with pytest.raises(ValueError, match=r"block is 'gpt3'|rope_theta is -1\.0"):
            LoriiniConfig.from_pretrained(tmp_path, **changes)
    config = LoriiniConfig.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="num_experts is 0"):
        config.num_experts = 0
    for name, value in (("dropout", 0.1), ("rope_parameters", {"rope_theta": -1.0})):
        config = LoriiniConfig.from_pretrained(tmp_path)
        setattr(config, name, value)
        with pytest.raises(ValueError, match=r"dropout is 0\.1|rope_theta is -1\.0"):
            LoriiniForCausalLM(config)


def test_what_follows_from_a_setting_follows_when_it_is_changed_later(tmp_path: Path) -> None:
    config, ids = tiny_config("mixtral"), random_ids()
    config.save_pretrained(tmp_path / "config")
    read = LoriiniConfig.from_pretrained(tmp_path / "config", routing="aoe")
    config.routing = read.routing
    assert read.low_rank == tiny_config("aoe").low_rank == 8
    aoe = LoriiniForCausalLM(config)
    assert aoe.config.low_rank == 8
    aoe.save_pretrained(tmp_path / "aoe")
    again = LoriiniForCausalLM.from_pretrained(tmp_path / "aoe")
    torch.testing.assert_close(again(ids).logits, aoe.eval()(ids).logits)
    assert LoriiniConfig.from_pretrained(tmp_path / "aoe", routing="lory").low_rank == 8


def test_scaled_positions_need_their_rope_theta(tmp_path: Path) -> None:
    """transformers sets it to None where `rope_scaling` replaces the settings of a configuration."""
    tiny_config().save_pretrained(tmp_path)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="rope_theta"):
        LoriiniConfig.from_pretrained(tmp_path, rope_scaling=dict(LINEAR))


def test_a_shape_has_the_part_of_a_head_that_is_rotated() -> None:
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    config = LoriiniConfig(num_attention_heads=2, hidden_size=16, rope_parameters=rope)
    assert ModelShape.from_config(config).config_values()["rope_parameters"] == rope
