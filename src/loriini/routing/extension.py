"""Scorers, selections, gates and losses of one's own, without a change of the package.

A name in a file is only looked up in these tables: no file makes Loriini import a module.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from loriini.routing.design import UNTRAINED
from loriini.routing.losses import LOSSES, Loss, auxiliary_loss
from loriini.routing.registry import COMPARES_UNITS, REGISTERED
from loriini.routing.router import Router
from loriini.routing.scorer import SCORERS, RouterSettings, ScorerModule
from loriini.routing.selection import GATES, SELECTIONS, Select, Weigh
from loriini.routing.unit import RoutingContext, UnitLayout


def register_scorer(
    name: str, scorer: Callable[[RouterSettings], ScorerModule], options: Iterable[str] = ()
) -> None:
    """Add a value of `scorer`: a class or function that builds a layer's module from its settings.

    `options`, here and below, are the numbers it reads from `RoutingConfig.options`, by name. ValueError for
    the name of a scorer of Loriini; one that was registered before is replaced.
    """
    _register("scorer", SCORERS, name, scorer, options)


def register_selection(
    name: str, select: Select, options: Iterable[str] = (), compares_units: bool = False
) -> None:
    """Add a value of `selection`: logits (units, E), design, valid units, training → mask (units, E).

    `compares_units`: in training, what a unit gets depends on the other units of the micro-batch, so that the
    design is not causal there. ValueError as for scorers.
    """
    _register("selection", SELECTIONS, name, select, options)
    (COMPARES_UNITS.add if compares_units else COMPARES_UNITS.discard)(name)


def register_gates(name: str, weigh: Weigh, options: Iterable[str] = ()) -> None:
    """Add a value of `gates`: logits (units, E), mask (units, E), design → gates, 0 where not selected.

    ValueError as for scorers.
    """
    _register("gates", GATES, name, weigh, options)


def register_loss(name: str, loss: Loss) -> None:
    """Add an auxiliary loss: a `Routing` of all layers, in the first axis → a value of each layer.

    Its weight is the option of its name; in several processes, each takes it of its own units. ValueError as
    for scorers.
    """
    _register("loss", LOSSES, name, loss, ())


def _register(axis: str, table: dict[str, Any], name: str, value: Any, options: Iterable[str]) -> None:
    if name in table and name not in REGISTERED[axis]:
        raise ValueError(f"{axis} {name} is one of Loriini; choose another name")
    table[name] = value
    REGISTERED[axis][name] = (options,) if isinstance(options, str) else tuple(options)


def router_warning(settings: RouterSettings) -> str | None:
    """A sentence warning that a layer's router has weights to train and no gradient reaches them, or None."""
    design = settings.design
    if settings.num_experts == 1 or design.scorer in UNTRAINED or design.constant_gates:
        return None
    if _gradients_reach(settings):
        return None
    return (
        "no gradient reaches the router, which stays as it is drawn: its gates do not vary with its logits; "
        "set --routing.gates softmax_all or an auxiliary loss, or say --routing.scorer frozen"
    )


def _gradients_reach(settings: RouterSettings, units: int = 64) -> bool:
    """Whether gates or losses depend on a router's weights, if it has some: measured at random ones."""
    with torch.random.fork_rng(devices=[]):
        router = Router(settings)
        weights = [nn.init.normal_(weight) for weight in router.parameters() if weight.requires_grad]
        width = settings.hidden_size * (2 if settings.design.scorer == "linear_segment" else 1)
        states_BUD = torch.randn(1, units, width) / width**0.5
        routing = router(states_BUD, RoutingContext(1, units), settings.design, UnitLayout(units, 1))
    auxiliary = auxiliary_loss((routing,), settings.design)
    loss = routing.gates.square().sum() + (0 if auxiliary is None else auxiliary)
    found = torch.autograd.grad(loss, weights, allow_unused=True) if loss.requires_grad else ()
    return not weights or any(gradient is not None and gradient.abs().max() > 1e-6 for gradient in found)
