"""Rows as JSON, or as a table one can read."""

import json
from typing import Any


def show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Rows as JSON, or as a table of the columns."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (list(columns), *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    """A value as a table shows it."""
    return "–" if value is None else f"{value:,.0f}" if isinstance(value, int | float) else str(value)
