"""Registration of your own scorers, selections, gates and losses.

A name in a run's or model's file is only looked up here: no file makes Loriini import a module.
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

    `options`, here and below: names of the numbers that it reads from `RoutingConfig.options`. ValueError for
    the name of a built-in scorer; a scorer registered before is replaced.
    """
    _register("scorer", SCORERS, name, scorer, options)


def register_selection(
    name: str, select: Select, options: Iterable[str] = (), compares_units: bool = False
) -> None:
    """Add a value of `selection`: logits (units, E), design, valid units, training → mask (units, E).

    `compares_units`: in training, a unit's experts depend on the other units of the micro-batch, so that the
    design is not causal in training. ValueError as for scorers.
    """
    _register("selection", SELECTIONS, name, select, options)
    (COMPARES_UNITS.add if compares_units else COMPARES_UNITS.discard)(name)


def register_gates(name: str, weigh: Weigh, options: Iterable[str] = ()) -> None:
    """Add a value of `gates`: logits (units, E), mask (units, E), design → gates, 0 where not selected.

    ValueError as for scorers.
    """
    _register("gates", GATES, name, weigh, options)


def register_loss(name: str, loss: Loss) -> None:
    """Add an auxiliary loss: the `Routing` of all layers (layers, units, E) → a value per layer (layers,).

    Its weight is the option of the same name. Each process computes it over its own units. ValueError as for
    scorers.
    """
    _register("loss", LOSSES, name, loss, ())


def _register(axis: str, table: dict[str, Any], name: str, value: Any, options: Iterable[str]) -> None:
    if name in table and name not in REGISTERED[axis]:
        raise ValueError(f"{axis} {name} is one of Loriini; choose another name")
    table[name] = value
    REGISTERED[axis][name] = (options,) if isinstance(options, str) else tuple(options)
