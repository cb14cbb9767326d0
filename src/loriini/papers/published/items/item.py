"""A figure or table of a paper as something to reproduce."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRun:
    """A model that a paper trained, in terms of the package."""

    recipe: str
    """From `loriini recipes`."""
    design: str = ""
    """From `loriini designs`; empty: the recipe's."""
    overrides: tuple[str, ...] = ()
    """As for `loriini train`."""
    evaluate: tuple[str, ...] = ()
    """As for `loriini evaluate`, where runs differ in it."""
    steps: float = 1.0
    """Multiple of the steps; other than 1 where a likely reason is tried."""
    learning_rate: float = 1.0
    """Multiple of the learning rate, likewise."""


@dataclass(frozen=True)
class Item:
    """A figure or table: what it shows, what the paper finds, and the runs that it needs."""

    id: str
    title: str
    source: str
    """Where the paper shows and discusses it."""
    finding: str
    """What the paper finds, in a sentence."""
    runs: Mapping[str, PaperRun]
    """By the row of the published values, or the name of the curve."""
    texts: tuple[str, ...] = ()
    """What the runs are trained on; if several, every run on each, and the columns have their names."""
    evaluate: tuple[str, ...] = ()
    """As for `loriini evaluate`, where all runs are evaluated alike."""
    note: str = ""
    """What the paper leaves open or contradicts."""
