"""A router takes the design of each call, as far as it was built for it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from loriini import LoriiniForCausalLM
from loriini.model.weights.conversion import converted
from tiny import random_ids, tiny_config, tiny_model


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mixtral", {"top_k": 1}),
        ("mixtral", {"gates": "softmax_all"}),
        ("mixtral", {"unit": "sequence"}),
        ("lory", {"first_segment": "uniform"}),
        ("lory", {"segment_length": 3}),
        ("sequence-top2", {"combination": "parameters"}),
        ("deepseek-v3", {"balance_bias": 0.5}),
    ],
    ids=str,
)
def test_a_design_changed_later_is_that_of_a_new_model(name: str, changes: dict[str, Any]) -> None:
    model, ids = tiny_model(name), random_ids()
    design = replace(model.config.routing, **changes)
    new = LoriiniForCausalLM(tiny_config(design)).eval()
    new.load_state_dict(model.state_dict())
    model.config.routing = design
    found, expected = model(ids), new(ids)
    torch.testing.assert_close(found.routings[0].gates, expected.routings[0].gates)
    torch.testing.assert_close(found.logits, expected.logits)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mixtral", {"scorer": "mlp"}),
        ("switch", {"scorer_width": 3}),
        ("aoe", {"norm": 1}),
        ("lory", {"gates": "uniform"}),
        ("deepseek-v3", {"balance_bias": 0.0}),
        ("deepseek-v3", {"num_shared_experts": 0}),
        ("global-top1", {"scope": "layer"}),
    ],
    ids=str,
)
def test_a_design_that_needs_another_router_is_refused(name: str, changes: dict[str, Any]) -> None:
    model, ids = tiny_model(name), random_ids()
    model.config.routing = replace(model.config.routing, **changes)
    with pytest.raises(ValueError, match=next(iter(changes))):
        model(ids)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("lory", {"norm": 1}), ("lory", {"scorer_width": 7}), ("dense", {"scorer": "mlp"})],
    ids=str,
)
def test_fields_without_effect_may_change(name: str, changes: dict[str, Any]) -> None:
    model, ids = tiny_model(name), random_ids()
    before = model(ids).logits
    model.config.routing = replace(model.config.routing, **changes)
    assert torch.equal(model(ids).logits, before)


def test_one_expert_has_any_design() -> None:
    model, ids = tiny_model("mixtral", num_experts=1), random_ids()
    before = model(ids).logits
    model.config.routing = replace(model.config.routing, scorer="mlp")
    assert torch.equal(model(ids).logits, before)
    assert torch.equal(converted(model, tiny_config("switch", num_experts=1))(ids).logits, before)
