"""Printed numbers: tables as the papers print them, and the single values in these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Paper = Literal["Lory", "SOAP", "Design choices", "AoE"]
"""SOAP is Lory's earlier version; only what it prints differently is recorded of it."""

SETUP = "setup"
"""The row of settings that hold for a whole item instead of one of its runs."""

OUR_DOMAINS = {"arXiv": "arxiv", "Books": "books", "Wiki": "wiki", "C4": "web", "Python": "python"}
"""Domains of held-out text by the papers' names."""


@dataclass(frozen=True)
class PublishedValue:
    """A number in a paper: the value in `column` of the run `row`, in the figure or table `item`."""

    paper: Paper
    item: str
    row: str
    column: str
    value: float
    unit: str
    source: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Numbers of one unit that are printed together: a table, a panel of one, or those of a sentence."""

    paper: Paper
    item: str
    """Id of the figure or table in `ITEMS`."""
    source: str
    """Where in the paper: a table, section or appendix."""
    unit: str
    """Empty for counts and settings."""
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | None]]
    """By the paper's name of the run; None: an empty cell."""
    note: str = ""
    """What the numbers leave open, such as "about", or contradict."""

    def values(self) -> Iterator[PublishedValue]:
        """The cells that are not empty, row by row."""
        for row, cells in self.rows.items():
            for column, value in zip(self.columns, cells, strict=True):
                if value is not None:
                    yield PublishedValue(
                        self.paper, self.item, row, column, value, self.unit, self.source, self.note
                    )
