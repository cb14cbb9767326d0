"""The whole space: every combination of axes that is admitted runs, and equals its naive twin."""

from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest
import torch

from loriini.model.experts import by_outputs_loop, by_parameters_loop
from loriini.routing import RoutingConfig
from loriini.routing import design as axes
from loriini.routing.unit import Call
from tiny import BLOCKS, random_ids, tiny_model

BATCH, LENGTH = 2, 11  # two segments of 8 with a short one at the end
LABELS = torch.tensor([0, 2])


def admitted(unit: str, scorer: str) -> Iterator[RoutingConfig]:
    """Every design of this unit and scorer that is not refused."""
    others = (axes.Scope, axes.Selection, axes.Gates, axes.Combination)
    for scope, selection, gates, combination in product(*map(get_args, others)):
        row = {"scope": scope, "selection": selection, "gates": gates, "combination": combination}
        try:
            yield RoutingConfig(unit=unit, scorer=scorer, segment_length=8, **row)  # type: ignore[arg-type]
        except ValueError:
            continue


PAIRS = [
    (u, s)
    for u, s in product(get_args(axes.Unit), get_args(axes.Scorer))
    if any(True for _ in admitted(u, s))
]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("unit", "scorer"), PAIRS)
def test_every_combination_runs_forward_and_backward(unit: str, scorer: str, block: str) -> None:
    ids = random_ids(BATCH, LENGTH)
    for routing in admitted(unit, scorer):
        if block == "gpt2" and scorer == "activation_norm":
            continue  # refused with its own reason: there is no gate to factorise
        model = tiny_model(routing, block=block).train()
        out = model(ids, labels=ids, routing_labels=LABELS)
        out.loss.backward()
        assert torch.isfinite(out.loss), routing
        for name, parameter in model.named_parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all(), (routing, name)
        assert len(out.routings) == model.config.num_hidden_layers


@pytest.mark.parametrize(("unit", "scorer"), PAIRS)
def test_every_combination_equals_its_naive_twin(unit: str, scorer: str) -> None:
    for routing in admitted(unit, scorer):
        mixture = tiny_model(routing).model.mixtures[0].double()
        x_BLD = torch.randn(BATCH, LENGTH, mixture.config.hidden_size, dtype=torch.float64)
        call = Call(BATCH, LENGTH, labels_B=LABELS)
        grid = call.grid(routing)
        y_BLD, decided = mixture(x_BLD, call, grid)
        if routing.combination == "parameters":
            units = by_parameters_loop(
                mixture.experts, grid.group(x_BLD).flatten(0, 1), decided.gates.double()
            )
            expected = grid.ungroup(units.unflatten(0, decided.unit_shape), LENGTH)
        else:
            gates_BUE = decided.gates.view(*decided.unit_shape, -1)
            gates_BLE = grid.ungroup(gates_BUE[:, :, None].expand(-1, -1, grid.slots_per_unit, -1), LENGTH)
            twin = by_outputs_loop(mixture.experts, x_BLD.flatten(0, 1), gates_BLE.flatten(0, 1).double())
            expected = twin.view_as(x_BLD)
        torch.testing.assert_close(y_BLD, expected, rtol=1e-6, atol=1e-9, msg=str(routing))
