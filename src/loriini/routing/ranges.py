"""Checks of configuration fields by their type and range, with one wording for all."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin


@dataclass(frozen=True)
class Range:
    """The finite numbers from `low` to `high`; `above` and `below` leave out the bound itself."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        inside = self.low < value if self.above else self.low <= value
        return math.isfinite(value) and inside and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        return f"in {'(' if self.above else '['}{self.low:g}, {self.high:g}{')' if self.below else ']'}"


POSITIVE = Range(0, above=True)
NOT_NEGATIVE = Range(0)
AT_LEAST_ONE = Range(1)


def check_field(name: str, value: Any, kind: Any, allowed: Range | None = None) -> None:
    """ValueError with name, value and what is allowed, for a value that is not of `kind` or out of range.

    `kind` is int, float or a `Literal`; values of other kinds are not checked.
    """
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            choices = ", ".join(map(str, get_args(kind)))
            raise ValueError(f"{name} is {value!r}; it must be one of: {choices}")
    elif kind in (int, float):
        numbers = int if kind is int else (int, float)
        if not isinstance(value, numbers) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; it must be {'an integer' if kind is int else 'a number'}")
        if allowed is not None and value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be {allowed}")
