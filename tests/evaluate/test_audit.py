"""The audit measures what the designs claim, of models in memory and of a trained run."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from loriini import RoutingConfig
from loriini.evaluate.audit import audit, random_instances
from tiny import GRID, SEGMENT, random_ids, tiny_config, tiny_model

DESIGNS = {
    **{name: tiny_config(name).routing for name in GRID},
    "lory uniform": RoutingConfig(segment_length=SEGMENT, first_segment="uniform"),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_measure_as_they_declare(name: str) -> None:
    design = DESIGNS[name]
    model = tiny_model(design)
    leak = audit(model, random_instances(model))
    assert leak.measured == leak.declared == design.causality
    assert (leak.segment_1 > leak.tolerance) == (design.segmented and design.causality != "strict")
    assert (leak.later > leak.tolerance) == (design.causality == "none")


LEAKS = {"all tokens": lambda x_BLD: x_BLD.mean(1, True), "the next token": lambda x_BLD: x_BLD.roll(-1, 1)}


@pytest.mark.parametrize("leaked", LEAKS.values(), ids=LEAKS)
def test_a_leak_that_no_design_declares_is_found(leaked: Callable[[Tensor], Tensor]) -> None:
    model = tiny_model("mixtral")
    last = model.model.layers[1]
    last.register_forward_hook(lambda _, inputs, out: (out[0] + leaked(inputs[0]), out[1]))
    leak = audit(model, random_ids())
    assert (leak.declared, leak.measured) == ("strict", "none")


def test_instances_are_the_same_under_a_seed_and_fit_the_context() -> None:
    model = tiny_model(max_position_embeddings=SEGMENT)
    assert torch.equal(random_instances(model), random_instances(model))
    assert not torch.equal(random_instances(model), random_instances(model, seed=1))
    assert random_instances(model).shape == (4, SEGMENT)
    assert audit(model, random_instances(model)).measured == "after_first_segment"
