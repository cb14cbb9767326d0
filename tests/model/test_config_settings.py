"""Settings of a configuration by their names: misspelt, of other libraries, and changed later."""

from pathlib import Path

import pytest

from loriini import DESIGNS, LoriiniConfig, LoriiniForCausalLM, RoutingConfig
from loriini.model.configuration import resolve_routing


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
