import math
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import pytest

from loriini import DESIGNS, RoutingConfig
from loriini.routing import causality_warning, design, losses
from loriini.routing.design import AUXILIARY_LOSSES, router_warning
from loriini.routing.scorer import SCORERS
from loriini.routing.selection import GATES, SELECTIONS
from tiny import SEGMENT, random_ids, tiny_model

AXES = ["unit", "scope", "scorer", "selection", "gates", "combination"]
ROWS = {
    "lory": "segment layer linear all softmax_all parameters segment_length=256 first_segment=self",
    "lory-top2": "segment layer linear top_k softmax_selected parameters "
    "top_k=2 segment_length=256 first_segment=self",
    "segment-then-token": "token layer linear_segment top_k softmax_selected outputs "
    "top_k=2 segment_length=256 load_balance=0.01",
    "prefix": "prefix layer linear all softmax_all parameters",
    "smear": "sequence layer linear all softmax_all parameters",
    "ec-token": "token layer linear expert_choice softmax_all outputs capacity_factor=1.0",
    "ec-segment": "segment layer linear expert_choice softmax_all outputs "
    "capacity_factor=1.0 segment_length=256",
    "token-ec2": "token layer linear expert_choice softmax_all outputs capacity_factor=2.0",
    "token-top-p": "token layer linear top_p softmax_selected outputs "
    "top_p=0.6 load_balance=0.01 confidence_entropy=0.0001",
    "switch": "token layer mlp top_k softmax_all outputs top_k=1 load_balance=0.01",
    "mixtral": "token layer linear top_k softmax_selected outputs top_k=2 load_balance=0.01",
    "sequence-top1": "sequence layer mlp top_k softmax_all outputs top_k=1",
    "sequence-top2": "sequence layer mlp top_k softmax_twice outputs top_k=2",
    "global-top1": "sequence global mlp top_k softmax_all outputs top_k=1",
    "global-top2": "sequence global mlp top_k softmax_twice outputs top_k=2",
    "frozen": "token layer frozen top_k softmax_selected outputs",
    "random": "token layer random top_k softmax_selected outputs",
    "label": "sequence layer label top_k softmax_selected outputs top_k=1",
    "aoe": "token layer activation_norm top_k softmax_selected outputs "
    "top_k=2 norm=2 node=low_rank load_balance=0.01",
    "aoe-top-p": "token layer activation_norm top_p softmax_selected outputs "
    "top_p=0.6 confidence_entropy=0.0001",
    "aoe-ec": "token layer activation_norm expert_choice softmax_selected outputs capacity_factor=2.0",
    "deepseek-v3": "token layer linear top_k sigmoid outputs top_k=2 balance_bias=0.001 num_shared_experts=1",
    "relu": "token layer linear positive relu outputs gate_l1=0.01",
}
"""The choices along AXES, and the numbers that the papers say; weights of losses are 0 elsewhere."""


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_the_papers(name: str) -> None:
    assert set(DESIGNS) == {"dense", *ROWS}
    row, words = DESIGNS[name], ROWS[name].split()
    assert [getattr(row, axis) for axis in AXES] == words[: len(AXES)]
    expected = dict.fromkeys(AUXILIARY_LOSSES, "0.0") | dict(word.split("=") for word in words[len(AXES) :])
    assert {field: str(getattr(row, field)) for field in expected} == expected


@pytest.mark.parametrize("name", DESIGNS)
def test_a_warning_comes_where_tokens_see_all_later_ones(name: str) -> None:
    row = DESIGNS[name]
    assert (causality_warning(row) is not None) == (row.causality == "none")
    assert (causality_warning(row, training=True) is not None) == (row.training_causality == "none")


def test_every_choice_is_an_entry_of_its_table() -> None:
    assert set(SCORERS) == set(get_args(design.Scorer))
    assert set(SELECTIONS) == set(get_args(design.Selection))
    assert set(GATES) == set(get_args(design.Gates))
    assert set(losses.LOSSES) == set(AUXILIARY_LOSSES) <= {field.name for field in fields(RoutingConfig)}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mixtral", {"combination": "parameters"}),
        ("aoe", {"scope": "global"}),
        ("aoe", {"unit": "sequence"}),
        ("aoe", {"unit": "segment", "combination": "parameters"}),
        ("lory", {"load_balance": 0.01}),
        ("label", {"load_balance": 0.01}),
        ("dense", {"router_z": 0.1}),
        ("lory", {"gate_l1": 0.1}),
        ("mixtral", {"gate_l1": 0.1}),
        ("ec-token", {"load_balance": 0.01}),
        ("smear", {"first_segment": "uniform"}),
        ("ec-segment", {"first_segment": "uniform"}),
        ("prefix", {"first_segment": "skip_loss"}),
        ("mixtral", {"gates": "relu"}),
        ("lory", {"gates": "sparse_mixer"}),
        ("mixtral", {"balance_bias": 0.001}),
        ("lory", {"scorer": "linear_segment"}),
        ("lory", {"segment_length": 0}),
        ("mixtral", {"top_k": "2"}),
        ("token-top-p", {"top_p": 1.5}),
        ("ec-token", {"capacity_factor": math.inf}),
        *(("lory", {name: -0.1}) for name in ("jitter", "balance_bias", *losses.LOSSES)),
        *(("lory", {name: math.nan}) for name in ("jitter", "balance_bias", *losses.LOSSES)),
        *(("lory", {name: "paragraph"}) for name in AXES),
        ("aoe", {"norm": True}),
    ],
    ids=str,
)
def test_what_has_no_meaning_is_refused_by_its_field(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        RoutingConfig(**{**asdict(DESIGNS[name]), **changes})


def test_dense_warm_up_needs_gates_that_sum_to_one() -> None:
    refused = (
        "ec-token ec-segment token-ec2 switch sequence-top1 global-top1 aoe aoe-top-p aoe-ec relu deepseek-v3"
    )
    assert {name for name, row in DESIGNS.items() if not row.preserves_dense} == set(refused.split())
    for gates in ("softmax_twice", "sparse_mixer"):
        assert replace(DESIGNS["mixtral"], gates=gates).preserves_dense == (gates == "softmax_twice")


@pytest.mark.parametrize(
    ("design", "changes", "trained"),
    [
        ("lory", {}, True),
        ("mixtral", {}, True),
        ("mixtral", {"top_k": 1}, True),  # by its loss
        ("mixtral", {"top_k": 1, "load_balance": 0.0}, False),
        ("switch", {"load_balance": 0.0}, True),
        ("mixtral", {"gates": "uniform", "load_balance": 0.0}, False),
        ("frozen", {}, False),
        ("aoe", {}, False),
        ("dense", {}, False),
    ],
)
def test_which_routers_are_trained(design: str, changes: dict[str, Any], trained: bool) -> None:
    routing = replace(DESIGNS[design], **changes)
    assert routing.trains_router == trained
    model = tiny_model(replace(routing, segment_length=SEGMENT)).train()
    model(ids := random_ids(), labels=ids).loss.backward()
    scorer = model.model.mixtures[0].router.scorer
    weights = [] if scorer is None else list(scorer.parameters())
    reached = any(w.grad is not None and w.grad.abs().max() > 1e-12 for w in weights)
    assert reached == trained
    warned = router_warning(routing, model.config.num_experts) is not None
    assert warned == (not trained and design not in ("frozen", "aoe"))
    assert router_warning(routing, num_experts=1) is None


def test_fields_without_effect_do_not_change_a_designs_name() -> None:
    assert design.design_name(replace(DESIGNS["lory"], top_k=4, norm=1)) == "lory"
    assert design.design_name(replace(DESIGNS["mixtral"], capacity_factor=2.0)) == "mixtral"
    assert design.design_name(replace(DESIGNS["mixtral"], top_k=4)) == "a design of its own"
    assert [design.design_name(each) for each in DESIGNS.values()] == list(DESIGNS)
