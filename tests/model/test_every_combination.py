"""The whole space: admitted designs that cover every pair of choices run, and equal their naive twins."""

from itertools import combinations, product
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from covering import cover
from loriini.routing import RoutingConfig
from loriini.routing import design as axes
from model.experts.twins import use_twins
from tiny import assert_same_gradients, gradients, random_ids, tiny_model

AXES = {
    "unit": axes.Unit,
    "scope": axes.Scope,
    "scorer": axes.Scorer,
    "selection": axes.Selection,
    "gates": axes.Gates,
    "combination": axes.Combination,
}


def admitted() -> list[RoutingConfig]:
    """Every combination of choices that is not refused."""
    designs = []
    for choices in product(*map(get_args, AXES.values())):
        try:
            designs.append(RoutingConfig(segment_length=8, **dict(zip(AXES, choices, strict=True))))
        except ValueError:
            continue
    return designs


def cases() -> list[Any]:
    """By default, some that together have every pair of choices that any of them has."""
    designs = admitted()
    chosen = cover(designs, lambda design: combinations([(axis, getattr(design, axis)) for axis in AXES], 2))
    return [
        pytest.param(
            design,
            marks=() if design in chosen else (pytest.mark.grid,),
            id="-".join(getattr(design, axis) for axis in AXES),
        )
        for design in designs
    ]


@pytest.mark.parametrize("design", cases())
def test_a_combination_equals_its_naive_twin(design: RoutingConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model(design).double().train(), random_ids(2, 11)  # segments of 8, the last one short

    def outcome() -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad()
        out = model(ids, labels=ids, routing_labels=torch.tensor([0, 2]))
        out.loss.backward()
        assert torch.isfinite(out.loss)
        assert len(out.routings) == model.config.num_hidden_layers
        return out.logits.detach(), gradients(model)

    logits, found = outcome()
    use_twins(monkeypatch)
    expected, wanted = outcome()
    torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-9)
    assert_same_gradients(found, wanted, rtol=1e-5, atol=1e-8)
