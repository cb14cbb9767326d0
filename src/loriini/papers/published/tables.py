"""All tables that the papers print, and the values in them."""

from loriini.papers.published import aoe, design_choices, lory, soap
from loriini.papers.published.values import PublishedValue

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
