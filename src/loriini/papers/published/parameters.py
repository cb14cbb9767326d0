"""Parameters of the papers' models, as far as they are printed, by recipe; read from the tables.

Ours differ by more than 1 % where

- Lory names a dense model and all active parameters by a round size: 0.3 B, 1.5 B and 7 B;
- AoE's 732 M count one of two embedding matrices of 32,000 x 768, though its 247 M count both: ours hold
  757 M, 25 M of them in the second matrix (1 % of the 4 B);
- AoE counts the same active parameters for autonomous experts as for routed ones; ours add what every token
  does in the experts that it does not select, their W_down, and the large router's own parameters.
"""

from collections.abc import Iterator

from loriini.papers.published.items import ITEMS
from loriini.papers.published.tables import published_values
from loriini.papers.published.values import SETUP

Parameters = dict[str, float]
"""`total` and `active`, as far as printed."""


def printed(item: str, row: str) -> Parameters:
    """The numbers of parameters in a row of an item, by column."""
    return {v.column: v.value for v in published_values(item, row) if v.unit == "parameters"}


def lory() -> Iterator[tuple[str, Parameters]]:
    """Each recipe of tables 4 and 5, which name as many active parameters as the dense model has."""
    for item in ("lory-table4", "lory-table5"):
        for row, run in ITEMS[item].runs.items():
            total, active = (printed(item, name)["n_params"] for name in (row, row.split("/")[0]))
            yield run.recipe, {"total": total, "active": active}


def design_choices() -> Iterator[tuple[str, Parameters]]:
    """Each recipe of table 1."""
    for row, run in ITEMS["design-choices-table1"].runs.items():
        yield run.recipe, printed("design-choices-table1", row)


def aoe() -> Iterator[tuple[str, Parameters]]:
    """Each recipe of tables 2, 3 and 5; how many are active with top-p depends on the input."""
    sources = {"aoe-table2": "aoe-table2", "aoe-table3": "aoe-table2", "aoe-table5": "aoe-table5"}
    for item, source in sources.items():
        for row, run in ITEMS[item].runs.items():
            kept = ("total",) if row.startswith("top-p") else ("total", "active")
            yield run.recipe, {column: printed(source, SETUP)[column] for column in kept}


PARAMETERS = dict((*lory(), *design_choices(), *aoe()))
