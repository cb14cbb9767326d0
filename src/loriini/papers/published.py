"""What the four papers print, read from `numbers/*.toml`: items, every table, sizes and training of models.

The row of a published value is that of a run of its item, so that a report can print a measurement next to
it, or `setup` for values of the whole item.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from loriini.evaluate.settings import EvaluationRouting

OUR_DOMAINS = {"arXiv": "arxiv", "Books": "books", "Wiki": "wiki", "C4": "web", "Python": "python"}
"""The papers' name of a domain → its name in our held-out text."""


@dataclass(frozen=True)
class PublishedValue:
    """A number in a paper: the value in `column` of the run `row`, in the figure or table `item`."""

    paper: str
    item: str
    row: str
    column: str
    value: float
    unit: str
    """Empty for counts and settings."""
    source: str
    """Where in the paper: a table, section or appendix."""
    note: str = ""
    """What the number leaves open, such as "about", or contradicts."""


@dataclass(frozen=True)
class PaperRun:
    """A model that a paper trained, in terms of the package."""

    recipe: str
    """From `loriini recipes`."""
    design: str = ""
    """From `loriini designs`; empty: the recipe's."""
    overrides: tuple[str, ...] = ()
    """As for `loriini train`."""
    routing: EvaluationRouting = "training"
    """How it is routed in evaluation; questions: by their prompt, unless this is given."""
    router_free: str = ""
    """NODE:NORM:GATES by which its experts are ranked in evaluation; empty: they are routed."""


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
    note: str = ""
    """What the paper leaves open or contradicts."""
    here: str = ""
    """What differs from the paper at every scale."""


def _read_paper(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("numbers").joinpath(f"{name}.toml").read_text("utf-8"))


def _read_run(run: str | Mapping[str, Any]) -> PaperRun:
    return PaperRun(**_with_tuples({"recipe": run} if isinstance(run, str) else run))


def _read_item(item: Mapping[str, Any]) -> Item:
    runs = {row: _read_run(run) for row, run in item.get("runs", {}).items()}
    return Item(**{**_with_tuples(item), "runs": runs})


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}


def _read_values(paper: Mapping[str, Any]) -> Iterator[PublishedValue]:
    """The printed values of a paper, table after table; NaN is an empty cell."""
    for table in paper["tables"]:
        about = (table.get("unit", ""), table["source"], table.get("note", ""))
        for row, cells in table["rows"].items():
            for column, value in zip(table["columns"], cells, strict=True):
                if not math.isnan(value):
                    yield PublishedValue(paper["paper"], table["item"], row, column, value, *about)


PAPERS = [_read_paper(name) for name in ("lory", "soap", "design_choices", "aoe")]
ITEMS = {item["id"]: _read_item(item) for paper in PAPERS for item in paper.get("items", ())}
"""Id → item, paper after paper."""
VALUES = tuple(chain.from_iterable(map(_read_values, PAPERS)))
PARAMETERS: Mapping[str, Mapping[str, float]] = {
    recipe: sizes for paper in PAPERS for recipe, sizes in paper.get("parameters", {}).items()
}
"""`total` and `active` by recipe, as far as printed."""


def published_values(
    item: str, row: str | None = None, column: str | None = None
) -> Sequence[PublishedValue]:
    """The values of an item, of one of its rows or of a cell, in the order printed.

    A cell that Lory's earlier version prints differently has two values, Lory's first.
    """
    return [
        value
        for value in VALUES
        if value.item == item and row in (None, value.row) and column in (None, value.column)
    ]
