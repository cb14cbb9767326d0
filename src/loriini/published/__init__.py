"""What the four papers print, as data: models, training, every table, and the findings of tables and figures.

No code here runs anything. A `PublishedValue` and a run of its `Item` have the same row, so that a report can
print a measurement next to it.
"""

from loriini.published import aoe, design_choices, lory, soap
from loriini.published.items import ITEMS
from loriini.published.parameters import PARAMETERS
from loriini.published.training import TRAINING
from loriini.published.values import PublishedValue

TABLES = (*lory.TABLES, *soap.TABLES, *design_choices.TABLES, *aoe.TABLES)


def published_values(item: str, row: str | None = None, column: str | None = None) -> list[PublishedValue]:
    """The values of an item, of one of its rows or of a cell, in the order printed.

    A cell that SOAP prints differently has two, Lory's first.
    """
    return [
        value
        for table in TABLES
        if table.item == item
        for value in table.values()
        if row in (None, value.row) and column in (None, value.column)
    ]


__all__ = ["ITEMS", "PARAMETERS", "TABLES", "TRAINING", "published_values"]
