"""What a comparison trains: settings, without heavy imports, which the command line reads as options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from loriini.common.checks import Bounds, check_fields
from loriini.common.errors import InputError
from loriini.common.options import Option

Grid = Mapping[str, Sequence[str]]
"""Dotted name of a setting → its values, as text."""

MULTIPLE = 8
"""Every width is a multiple of this, as grouped matrix products need."""


def parse_widths(text: str) -> tuple[int, ...]:
    """The widths of `W,W…`, the smallest first. InputError for a wrong one, and for fewer than two."""
    words = text.split(",")
    widths = {int(word) for word in words if word.isdecimal() and int(word) % MULTIPLE == 0} - {0}
    if len(widths) < max(2, len(words)):
        raise InputError(
            f"--ladder {text}: give two or more different widths, multiples of {MULTIPLE}, such as 64,128"
        )
    return tuple(sorted(widths))


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse `FIELD=V,V…`, each a dimension of the grid. InputError for a malformed or repeated one."""
    grid: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.removeprefix("--").replace("-", "_")
        parsed = [value for value in _split_values(values) if value]
        if not name or not parsed:
            raise InputError(f"--grid {text}: give FIELD=V,V, such as routing.segment_length=64,128")
        if name in grid:
            raise InputError(f"--grid {text}: {name} was given before; give all its values at once")
        grid[name] = parsed
    return grid


def _split_values(text: str) -> list[str]:
    """A text at its commas, except those within brackets."""
    values, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            values.append("")
        else:
            values[-1] += character
    return values


@dataclass(frozen=True)
class CompareSettings:
    """What to train. InputError for a wrong setting."""

    designs: tuple[str, ...] = ()
    """Names in `DESIGNS`; differences are from the first causal one."""
    recipe: str = "tiny"
    """Base run, whose routing each design replaces: tiny, small, medium, large, or a recipe."""
    overrides: tuple[str, ...] = ()
    """`--dotted.name=value`, for all trainings."""
    grid: Annotated[Grid, Option("FIELD=V,V", parse=parse_grid)] = field(default_factory=dict)
    """Compare these values of a setting; several grids are combined."""
    seeds: Annotated[int, Bounds(least=1, most=1000)] = 3
    """Trainings of each design, with consecutive seeds."""
    ladder: Annotated[tuple[int, ...], Option("W,W", parse=parse_widths)] = ()
    """Train each design at these widths, and show loss over compute."""
    corpus: tuple[Path, ...] = ()
    """Prepared corpora to train on (for a tiny recipe, a small one of the standard library's text)."""
    jobs: int = 1
    """Trainings at once, which share the cores."""

    def __post_init__(self) -> None:
        check_fields(self, dashed=True)
