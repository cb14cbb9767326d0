"""Configuration fields: their bounds are declared in their types, and checked on construction.

@dataclass(frozen=True)
class OptimizerConfig:
    learning_rate: Annotated[float, Bounds(above=0, most=1)] = 2e-4

    def __post_init__(self) -> None:
        check_fields(self, "optimizer.")
"""

import json
import math
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from loriini.common.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """A finite number, `least` and `most` included, `above` and `below` excluded."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def admit(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        finite = {name: end for name, end in ends.items() if math.isfinite(end)}
        return " and ".join(f"{n} {end:{',' if type(end) is int else '.10g'}}" for n, end in finite.items())


LARGEST = 10**15
"""Upper bound of numbers that need no tighter one: far above any model, text or machine."""
Count = Annotated[int, Bounds(least=1, most=LARGEST)]
CountOrZero = Annotated[int, Bounds(least=0, most=LARGEST)]
ShortCount = Annotated[int, Bounds(least=1, most=1 << 20)]
"""Tokens of a text, or instances of a domain, in an evaluation."""
Positive = Annotated[float, Bounds(above=0, most=LARGEST)]
NotNegative = Annotated[float, Bounds(least=0, most=LARGEST)]
Weight = Annotated[float, Bounds(least=0, most=1000)]
"""The weight of an auxiliary loss, or a multiplier of a learning rate."""
Seed = Annotated[int, Bounds(least=0, below=2**32)]
"""torch's CPU generator uses only the low 32 bits of a seed."""
Fraction = Annotated[float, Bounds(least=0, most=1)]
FractionBelowOne = Annotated[float, Bounds(least=0, below=1)]


def check_fields(config: Any, section: str = "", dashed: bool = False) -> None:
    """Check every field of a dataclass against its annotated type.

    Raises InputError that names the first wrong field as on the command line: `--`, `section`, the field.
    With `dashed` the field is an option of a command, and has dashes between its words.
    """
    for name, value, expected in wrong_fields(config):
        option = option_of(name) if dashed else f"--{section}{name}"
        # quoted, so that the text "5" is not shown as the number 5
        shown = repr(value) if isinstance(value, str) and value[:1].isdigit() else as_argument(value)
        raise InputError(f"{option} is {shown}; it must be {expected}")


def wrong_fields(config: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, value, what it must be) for each field of a dataclass that violates its annotated type."""
    kind: Any = type(config)
    hints = _hints(kind)
    for each in fields(config):
        if expected := mismatch(value := getattr(config, each.name), hints[each.name]):
            yield each.name, value, expected


def option_of(name: str) -> str:
    """The command-line option that sets a field of this name."""
    return f"--{name.rstrip('_').replace('_', '-')}"  # from_ is --from


def check_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """InputError, listing the choices, if an option's value is not one of them."""
    if value not in (names := list(choices)):
        raise InputError(f"{option} {value}: unknown; choose one of: {', '.join(names)}")


def the_nearest(names: Sequence[str]) -> str:
    """A hint for the message on an unknown name, such as `the nearest is lory; `; empty without names."""
    return f"the nearest {'are' if len(names) > 1 else 'is'} {', '.join(names)}; " if names else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """`the_nearest` for the known name most similar to `name`; empty if none is similar."""
    return the_nearest(get_close_matches(name, list(known), 1))


def refuse_first(reasons: Iterator[str], error: type[Exception] = InputError) -> None:
    """Raise `error` with the first of the reasons to refuse something, if there is any."""
    if (reason := next(reasons, None)) is not None:
        raise error(reason)


def as_argument(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, tuple | list):
        return ",".join(map(as_argument, value)) or "none"
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def by_dotted_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by the names that the command line gives them, such as `optimizer.warmup`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": part for inner, part in by_dotted_name(value).items()}
        else:
            found[name] = value
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def mismatch(value: Any, hint: Any) -> str | None:
    """What a value must be to fit an annotated type, such as "an integer"; None if it fits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind, *marks = arguments
        bounds = [mark for mark in marks if hasattr(mark, "admit")]
        if kind is str and bounds:
            return None if isinstance(value, str) and bounds[0].admit(value) else str(bounds[0])
        return mismatch(value, kind) or next((str(b) for b in bounds if not b.admit(value)), None)
    if origin is Literal:
        among = any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in arguments)
        return None if among else f"one of: {', '.join(map(str, arguments))}"
    if origin in (Union, types.UnionType):
        expected = [mismatch(value, kind) for kind in arguments]
        return None if None in expected else " or ".join(map(str, expected))
    if origin is tuple:
        if not isinstance(value, tuple):
            return "several values (a tuple)"
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else list(arguments)
        if len(value) != len(kinds):
            return f"{len(kinds)} values"
        expected = [mismatch(part, kind) for part, kind in zip(value, kinds, strict=True)]
        return next((f"values, each {each}" for each in expected if each), None)
    return _mismatch_of_class(value, origin or hint)


def is_finite(value: float) -> bool:
    """Whether a value is neither NaN nor infinite, nor an integer too large for a float."""
    return abs(value) <= sys.float_info.max


def _mismatch_of_class(value: Any, kind: type) -> str | None:
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if number and is_finite(value) else "a finite number"
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return None
    return {int: "an integer", bool: "true or false", type(None): "none"}.get(kind, f"a {kind.__name__}")
