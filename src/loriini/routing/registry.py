"""The names that extensions add to the axes of a design, and the options that these read."""

from collections.abc import Iterator, Mapping
from typing import Any

from loriini.common.checks import Weight, mismatch

REGISTERED: dict[str, dict[str, tuple[str, ...]]] = {"scorer": {}, "selection": {}, "gates": {}, "loss": {}}
"""By axis, each registered name with the names of the options that it reads."""
AXES = ("scorer", "selection", "gates")
"""The axes of which a design has one value, built-in or registered; it may have any number of losses."""
COMPARES_UNITS = {"expert_choice"}
"""Selections that compare the units of a micro-batch in training."""


class Registered:
    """The values that extensions add to an axis; annotates a field, like `Bounds`."""

    def __init__(self, axis: str) -> None:
        self.names = REGISTERED[axis]

    def admit(self, name: str) -> bool:
        return name in self.names

    def __str__(self) -> str:
        known = ", ".join(self.names) or "none is loaded"
        return f"one that an extension adds ({known}; give --extension, or import its module)"


def registered_values(design: Any) -> dict[str, str]:
    """By axis, the values of a `RoutingConfig` that extensions added; losses are not included."""
    return {axis: value for axis in AXES if (value := getattr(design, axis)) in REGISTERED[axis]}


def wrong_options(options: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[str]:
    """Errors in a design's options; `values` are its values by axis, for AXES."""
    reader = {
        name: f"{axis}={value}" for axis, value in values.items() for name in REGISTERED[axis].get(value, ())
    }
    losses = REGISTERED["loss"]
    for name in sorted(reader.keys() - options.keys()):
        yield f"{reader[name]} reads routing.options.{name}, which is not given; add it"
    for name in sorted(options.keys() - reader.keys() - losses.keys()):
        yield f"routing.options.{name} is read by nothing; leave it out, or load its extension (--extension)"
    for name in sorted(reader.keys() & losses.keys()):
        yield f"routing.options.{name} is read by {reader[name]} and by the loss of this name; rename one"
    for name, value in options.items():
        if expected := mismatch(value, Weight if name in losses else float):
            yield f"routing.options.{name} is {value!r}; it must be {expected}"
