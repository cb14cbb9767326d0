from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from extensions import example, tables_restored
from loriini.model.weights.conversion import converted, keeps_routers
from loriini.model.weights.loading import load_model
from loriini.routing import (
    DESIGNS,
    Routing,
    RoutingConfig,
    register_gates,
    register_loss,
    register_scorer,
    register_selection,
)
from loriini.routing.design import design_name
from loriini.routing.losses import auxiliary_loss
from loriini.routing.registry import REGISTERED
from loriini.routing.scorer import SCORERS, LinearScorer, RouterSettings
from loriini.routing.selection import GATES, SELECTIONS, select_all, softmax_selected
from tiny import tiny_config, tiny_model


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with tables_restored():
        yield


def lowest(logits_NE: torch.Tensor, design: RoutingConfig, valid: Any, training: bool) -> torch.Tensor:
    return logits_NE == logits_NE.amin(-1, keepdim=True)


def test_without_its_extension_a_saved_model_is_refused(tmp_path: Path) -> None:
    with tables_restored():
        example()
        tiny_model(DESIGNS["cosine"]).save_pretrained(tmp_path / "model")
    with pytest.raises(Exception, match=r"'cosine'; it must be .*none is loaded; give --extension"):
        load_model(tmp_path / "model")


def test_an_own_selection_decides_which_experts_compute() -> None:
    register_selection("lowest", lowest)
    model = tiny_model(replace(DESIGNS["mixtral"], selection="lowest", load_balance=0))
    for routing in model(torch.arange(8)[None]).routings:
        assert torch.equal(routing.gates > 0, lowest(routing.logits, model.config.design, None, False))


def test_own_gates_weigh_the_selected_experts() -> None:
    register_gates("halved", lambda logits, mask, design: softmax_selected(logits, mask, design) / 2)
    gates = tiny_model(replace(DESIGNS["mixtral"], gates="halved"))(torch.arange(8)[None]).routings[0].gates
    torch.testing.assert_close(gates.sum(-1), torch.full((8,), 0.5))


def test_an_own_loss_is_weighed_by_its_option() -> None:
    register_loss("largest", lambda routing: routing.logits.amax((-1, -2)))
    routing = Routing(torch.eye(3) * 4, torch.eye(3), (1, 3))
    design = replace(DESIGNS["mixtral"], load_balance=0, options={"largest": 0.5})
    assert auxiliary_loss((routing,), design) == 2
    assert auxiliary_loss((routing,), replace(design, options={"largest": 0.0})) is None


def test_a_selection_that_compares_units_is_not_causal_in_training() -> None:
    register_selection("own", select_all, compares_units=True)
    design = replace(DESIGNS["mixtral"], selection="own", load_balance=0)
    assert (design.training_causality, design.causality) == ("none", "strict")
    register_selection("own", select_all)
    assert design.training_causality == "strict"


class WideScorer(LinearScorer):
    """A linear scorer with weights of a width that is an option."""

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__(settings)
        self.wide = torch.nn.Parameter(torch.zeros(int(settings.design.options["width"])))


def test_routers_of_other_options_are_new() -> None:
    register_scorer("own", WideScorer, options=["width"])
    wide, narrow = (
        replace(DESIGNS["mixtral"], scorer="own", options={"width": width}) for width in (16.0, 8.0)
    )
    assert keeps_routers(wide, wide)
    assert not keeps_routers(wide, narrow)
    changed = converted(tiny_model(wide), tiny_config(narrow))
    assert changed.model.mixtures[0].router.scorer.wide.shape == (8,)


@pytest.mark.parametrize(
    ("register", "axis", "taken"),
    [
        (register_scorer, "scorer", next(iter(SCORERS))),
        (register_selection, "selection", next(iter(SELECTIONS))),
        (register_gates, "gates", next(iter(GATES))),
        (register_loss, "loss", "load_balance"),
    ],
)
def test_built_in_values_are_not_replaced_but_registered_ones_are(
    register: Any, axis: str, taken: str
) -> None:
    with pytest.raises(ValueError, match=taken):
        register(taken, print)
    register("own", print)
    register("own", repr)
    assert "own" in REGISTERED[axis]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, r"routing\.options\.width"),
        ({"width": 1, "depth": 2}, r"routing\.options\.depth"),
        ({"width": "wide"}, r"routing\.options\.width"),
        ({"width": 1, "loss": -1}, r"routing\.options\.loss"),
        ({"width": float("nan")}, r"routing\.options\.width"),
        ([1], r"routing\.options"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Any, named: str) -> None:
    register_loss("loss", lambda routing: routing.logits.sum((-1, -2)))
    register_scorer("own", SCORERS["linear"], options="width")
    with pytest.raises(ValueError, match=named):
        replace(DESIGNS["mixtral"], scorer="own", options=options)


def test_an_own_loss_needs_logits_that_are_learnt_and_leaves_the_name() -> None:
    register_loss("own", lambda routing: routing.logits.sum((-1, -2)))
    with pytest.raises(ValueError, match="own is constant with scorer=label"):
        replace(DESIGNS["label"], options={"own": 1})
    assert design_name(replace(DESIGNS["lory"], options={"own": 1})) == "lory"
