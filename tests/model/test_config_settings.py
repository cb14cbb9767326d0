"""Settings of a configuration by their names: misspelt, of other libraries, and changed later."""

from pathlib import Path
from typing import Any

import pytest
import torch

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig
from loriini.model.configuration import resolve_routing
from loriini.model.decoder import LoriiniModel
from tiny import random_ids, tiny_config


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected setting num_expert; do you mean num_experts"):
        LoriiniConfig(num_expert=4)
    assert LoriiniConfig(rope_theta=500.0, torch_dtype="float32", something_else=1).something_else == 1


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("num_local_experts", "num_experts"),
        ("num_experts_per_tok", "routing's top_k"),
        ("router_aux_loss_coef", "routing's load_balance"),
        ("norm_topk_prob", "routing's gates"),
    ],
)
def test_settings_of_other_mixtures_are_refused_with_their_names_here(name: str, ours: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected setting {name}; here it is {ours}"):
        LoriiniConfig(routing="mixtral", **{name: 1})


@pytest.mark.parametrize("name", ["top_k", "segment_length", "load_balance", "num_shared_experts"])
def test_fields_of_the_routing_are_refused_outside_of_it(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} is a field of the routing: routing=replace\(.*{name}="):
        LoriiniConfig(routing="mixtral", **{name: 1})


def test_routing_may_be_a_design_its_json_object_or_its_name() -> None:
    design = DESIGNS["mixtral"]
    for routing in (design, design.to_dict(), "mixtral"):
        assert LoriiniConfig(routing=routing).routing == design
    assert resolve_routing({}) == RoutingConfig()


def test_settings_that_are_changed_later_are_checked_too(tmp_path: Path) -> None:
    """As `from_pretrained` does with its keyword arguments."""
    LoriiniConfig(hidden_size=16, num_attention_heads=2).save_pretrained(tmp_path)
    for routing in ("mixtral", DESIGNS["mixtral"].to_dict(), {"design": "mixtral"}):
        assert LoriiniConfig.from_pretrained(tmp_path, routing=routing).routing == DESIGNS["mixtral"]
    with pytest.raises(ValueError, match="block is 'gpt3'; it must be one of"):
        LoriiniConfig.from_pretrained(tmp_path, block="gpt3")
    config = LoriiniConfig.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="num_experts is 0; it must be at least 1"):
        config.num_experts = 0
    config.dropout = 0.1
    with pytest.raises(ValueError, match=r"dropout is 0\.1, but block=llama has none"):
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
    for model in (LoriiniForCausalLM, LoriiniModel):
        olmoe = LoriiniConfig.from_pretrained(tmp_path / "config", block="olmoe")
        assert model(olmoe).config.qk_norm == "all"


@pytest.mark.parametrize(
    ("rotary", "reason"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": -3.0}}, r"factor is -3\.0; it must be above 0"),
        ({"rope_scaling": {"rope_type": "yarm"}}, "rope_type is 'yarm'; with block=llama it must be one of"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}, "block": "phimoe"}, "rope_type is 'yarn'"),
        ({"rope_theta": -1.0}, r"rope_theta is -1\.0; it must be above 0"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor is 0\.5; all of a head is rotated"),
    ],
    ids=str,
)
def test_rotary_settings_by_their_older_names_are_checked(rotary: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tiny_config(**rotary)


def test_scaled_positions_need_their_rope_theta(tmp_path: Path) -> None:
    """transformers sets it to None where `rope_scaling` replaces the settings of a configuration."""
    config, linear = tiny_config(), {"rope_type": "linear", "factor": 2.0}
    config.save_pretrained(tmp_path)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="has no rope_theta; give it next to"):
        LoriiniConfig.from_pretrained(tmp_path, rope_scaling=dict(linear))
    with pytest.warns(FutureWarning):
        config.rope_scaling = linear
    with pytest.raises(ValueError, match="has no rope_theta; give it next to"):
        LoriiniForCausalLM(config)


def test_what_was_derived_stays(tmp_path: Path) -> None:
    tiny_config("aoe").save_pretrained(tmp_path)
    assert LoriiniConfig.from_pretrained(tmp_path, routing="lory").low_rank == tiny_config("aoe").low_rank
    assert LoriiniConfig.from_pretrained(tmp_path, routing="lory", low_rank=None).low_rank is None


def test_rotary_settings_that_are_changed_later_are_checked(tmp_path: Path) -> None:
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"rope_theta is -1\.0; it must be above 0"):
        LoriiniConfig.from_pretrained(tmp_path, rope_parameters={"rope_theta": -1.0})
    config = LoriiniConfig.from_pretrained(tmp_path)
    config.rope_parameters = {"rope_theta": -1.0}
    with pytest.raises(ValueError, match=r"rope_theta is -1\.0; it must be above 0"):
        LoriiniForCausalLM(config)
