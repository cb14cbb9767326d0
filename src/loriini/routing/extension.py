"""Scorers, selections, gates and losses of one's own, without a change of the package.

A name in a file is only looked up in these tables: no file makes Loriini import a module.
"""

from collections.abc import Callable, Iterable
from typing import Any

from loriini.routing.losses import LOSSES, Loss
from loriini.routing.registry import COMPARES_UNITS, REGISTERED
from loriini.routing.scorer import SCORERS, RouterSettings, ScorerModule
from loriini.routing.selection import GATES, SELECTIONS, Select, Weigh


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
