import json
import math
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import pytest

from loriini import DESIGNS, RoutingConfig
from loriini.routing import causality_warning, design, losses
from loriini.routing.design import AUXILIARY_LOSSES
from loriini.routing.scorer import SCORERS
from loriini.routing.selection import GATES, SELECTIONS
from tiny import SEGMENT, random_ids, tiny_model

AXES = ["unit", "scope", "scorer", "selection", "gates", "combination"]
ROWS = {
    "lory": "segment layer linear all softmax_all parameters",
    "lory-top2": "segment layer linear top_k softmax_selected parameters",
    "segment-then-token": "token layer linear_segment top_k softmax_selected outputs",
    "prefix": "prefix layer linear all softmax_all parameters",
    "smear": "sequence layer linear all softmax_all parameters",
    "ec-token": "token layer linear expert_choice softmax_all outputs",
    "ec-segment": "segment layer linear expert_choice softmax_all outputs",
    "token-ec2": "token layer linear expert_choice softmax_all outputs",
    "token-top-p": "token layer linear top_p softmax_selected outputs",
    "switch": "token layer mlp top_k softmax_all outputs",
    "mixtral": "token layer linear top_k softmax_selected outputs",
    "sequence-top1": "sequence layer mlp top_k softmax_all outputs",
    "sequence-top2": "sequence layer mlp top_k softmax_twice outputs",
    "global-top1": "sequence global mlp top_k softmax_all outputs",
    "global-top2": "sequence global mlp top_k softmax_twice outputs",
    "frozen": "token layer frozen top_k softmax_selected outputs",
    "random": "token layer random top_k softmax_selected outputs",
    "label": "sequence layer label top_k softmax_selected outputs",
    "aoe": "token layer activation_norm top_k softmax_selected outputs",
    "aoe-top-p": "token layer activation_norm top_p softmax_selected outputs",
    "aoe-ec": "token layer activation_norm expert_choice softmax_selected outputs",
    "deepseek-v3": "token layer linear top_k sigmoid outputs",
    "relu": "token layer linear positive relu outputs",
}
NUMBERS = {
    "lory": {"segment_length": 256, "first_segment": "self"},
    "lory-top2": {"top_k": 2, "segment_length": 256, "first_segment": "self"},
    "segment-then-token": {"top_k": 2, "segment_length": 256},
    "ec-token": {"capacity_factor": 1.0},
    "ec-segment": {"capacity_factor": 1.0, "segment_length": 256},
    "token-ec2": {"capacity_factor": 2.0},
    "token-top-p": {"top_p": 0.6},
    "switch": {"top_k": 1},
    "mixtral": {"top_k": 2},
    "sequence-top1": {"top_k": 1},
    "sequence-top2": {"top_k": 2},
    "global-top1": {"top_k": 1},
    "global-top2": {"top_k": 2},
    "label": {"top_k": 1},
    "deepseek-v3": {"top_k": 2, "balance_bias": 0.001, "num_shared_experts": 1},
    "aoe": {"top_k": 2, "norm": 2, "node": "low_rank"},
    "aoe-top-p": {"top_p": 0.6},
    "aoe-ec": {"capacity_factor": 2.0},
}
LOSSES = {
    "switch": {"load_balance": 0.01},
    "mixtral": {"load_balance": 0.01},
    "segment-then-token": {"load_balance": 0.01},
    "token-top-p": {"load_balance": 0.01, "confidence_entropy": 1e-4},
    "aoe": {"load_balance": 0.01},
    "aoe-top-p": {"confidence_entropy": 1e-4},
    "relu": {"gate_l1": 0.01},
}
LEAKY = {"smear", "sequence-top1", "sequence-top2", "global-top1", "global-top2"}
LEAKY_IN_SEGMENT_1 = {"lory", "lory-top2", "prefix", "ec-segment"}
LEAKY_IN_TRAINING = {"ec-token", "ec-segment", "token-ec2", "aoe-ec"}


def test_every_row_is_here() -> None:
    assert set(DESIGNS) == {"dense", *ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_the_papers(name: str) -> None:
    row = DESIGNS[name]
    assert [getattr(row, axis) for axis in AXES] == ROWS[name].split()
    assert {k: getattr(row, k) for k in NUMBERS.get(name, {})} == NUMBERS.get(name, {})
    weights = {"load_balance": 0.0, "confidence_entropy": 0.0, "router_z": 0.0, "gate_l1": 0.0}
    assert {k: getattr(row, k) for k in weights} == {**weights, **LOSSES.get(name, {})}


@pytest.mark.parametrize("name", DESIGNS)
def test_causality(name: str) -> None:
    expected = "none" if name in LEAKY else "after_first_segment" if name in LEAKY_IN_SEGMENT_1 else "strict"
    assert DESIGNS[name].causality == expected
    assert DESIGNS[name].training_causality == ("none" if name in LEAKY_IN_TRAINING else expected)


def test_causality_of_neighbouring_rows() -> None:
    lory, ec_segment = DESIGNS["lory"], DESIGNS["ec-segment"]
    assert replace(lory, first_segment="uniform").causality == "strict"
    assert replace(lory, first_segment="skip_loss").causality == "after_first_segment"
    assert replace(lory, gates="uniform").causality == "strict"
    assert replace(ec_segment, scorer="label").training_causality == "strict"


@pytest.mark.parametrize("name", DESIGNS)
def test_json_round_trip(name: str) -> None:
    assert RoutingConfig(**json.loads(json.dumps(DESIGNS[name].to_dict()))) == DESIGNS[name]


def test_every_choice_is_an_entry_of_its_table() -> None:
    assert set(SCORERS) == set(get_args(design.Scorer))
    assert set(SELECTIONS) == set(get_args(design.Selection))
    assert set(GATES) == set(get_args(design.Gates))
    assert set(losses.LOSSES) == set(AUXILIARY_LOSSES) <= {field.name for field in fields(RoutingConfig)}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("mixtral", {"combination": "parameters"}, "would merge one FFN for every token"),
        ("aoe", {"scope": "global"}, "say nothing about another layer's experts"),
        ("aoe", {"unit": "sequence"}, "scores tokens by their own activations"),
        ("aoe", {"unit": "segment", "combination": "parameters"}, "scores tokens by their own activations"),
        ("lory", {"load_balance": 0.01}, "load_balance is constant with selection=all"),
        ("label", {"load_balance": 0.01}, "load_balance is constant with scorer=label"),
        ("dense", {"router_z": 0.1}, "router_z is constant with selection=all, gates=uniform, where"),
        ("lory", {"gate_l1": 0.1}, "constant with gates=softmax_all, selection=all: they sum to 1; set"),
        ("mixtral", {"gate_l1": 0.1}, "gate_l1 is constant with gates=softmax_selected, selection=top_k"),
        ("ec-token", {"load_balance": 0.01}, "load_balance is constant with selection=expert_choice"),
        ("smear", {"first_segment": "uniform"}, "needs unit=segment, selection=all"),
        ("ec-segment", {"first_segment": "uniform"}, "needs unit=segment, selection=all"),
        ("prefix", {"first_segment": "skip_loss"}, "needs first_segment=self"),
        ("mixtral", {"gates": "relu"}, "set selection=positive"),
        ("lory", {"gates": "relu"}, "set selection=positive"),
        ("lory", {"gates": "sparse_mixer"}, "set selection=top_k"),
        ("mixtral", {"balance_bias": 0.001}, "it needs selection=top_k, gates=sigmoid"),
        ("deepseek-v3", {"selection": "top_p"}, "it needs selection=top_k, gates=sigmoid"),
        ("lory", {"scorer": "linear_segment"}, "scorer=linear_segment .* needs unit=token"),
        ("lory", {"segment_length": 0}, "routing.segment_length is 0; it must be at least 1"),
        ("mixtral", {"top_k": "2"}, "routing.top_k"),
        ("token-top-p", {"top_p": 1.5}, "routing.top_p"),
        ("ec-token", {"capacity_factor": math.inf}, "capacity_factor"),
        *(
            ("lory", {name: wrong}, f"routing.{name} is {wrong}; it must be {allowed}")
            for name in ("jitter", "balance_bias", *losses.LOSSES)
            for wrong, allowed in ((-0.1, "at least 0"), (math.nan, "a finite number"))
        ),
        ("lory", {"unit": "paragraph"}, "it must be one of: token, segment, prefix, sequence"),
        ("lory", {"scorer": "cosine"}, "routing.scorer"),
        ("lory", {"gates": "tanh"}, "routing.gates"),
        ("aoe", {"norm": True}, "routing.norm"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RoutingConfig(**{**asdict(DESIGNS[name]), **changes})


def test_dense_warm_up_needs_gates_that_sum_to_one() -> None:
    assert {name for name, row in DESIGNS.items() if not row.preserves_dense} == {
        "ec-token",
        "ec-segment",
        "token-ec2",
        "switch",
        "sequence-top1",
        "global-top1",
        "aoe",
        "aoe-top-p",
        "aoe-ec",
        "relu",
        "deepseek-v3",
    }


@pytest.mark.parametrize(("gates", "sums_to_one"), [("softmax_twice", True), ("sparse_mixer", False)])
def test_a_copy_needs_gates_that_sum_to_one(gates: str, sums_to_one: bool) -> None:
    assert replace(DESIGNS["mixtral"], gates=gates).preserves_dense == sums_to_one


@pytest.mark.parametrize("name", DESIGNS)
def test_what_is_not_causal_has_a_warning(name: str) -> None:
    assert (causality_warning(DESIGNS[name]) is not None) == (name in LEAKY)
    in_training = causality_warning(DESIGNS[name], training=True)
    assert (in_training is not None) == (name in LEAKY | LEAKY_IN_TRAINING)


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


def test_fields_without_effect_do_not_change_a_designs_name() -> None:
    assert design.design_name(replace(DESIGNS["lory"], top_k=4, norm=1)) == "lory"
    assert design.design_name(replace(DESIGNS["mixtral"], capacity_factor=2.0)) == "mixtral"
    assert design.design_name(replace(DESIGNS["mixtral"], top_k=4)) == "a design of its own"
    assert [design.design_name(each) for each in DESIGNS.values()] == list(DESIGNS)
