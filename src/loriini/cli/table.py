"""Rows as JSON, or as a table one can read."""

import json
from collections.abc import Sequence
from typing import Any

WIDEST = 60


def show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Rows as JSON, or as a table of the columns."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print(table(columns, [_cells([row[column] for column in columns]) for row in rows]))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Columns beside each other; `right` sets all but the first to the right, as numbers are."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = zip(row, widths, strict=True)
        aligned = (c.rjust(w) if right and i else c.ljust(w) for i, (c, w) in enumerate(cells))
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _cells(values: list[Any]) -> list[str]:
    """Values as a table shows them: long ones are cut, lest all rows be padded, but in the last column."""
    *padded, last = map(_cell, values)
    return [*(f"{cell[: WIDEST - 1]}…" if len(cell) > WIDEST else cell for cell in padded), last]


def _cell(value: Any) -> str:
    """A value as a table shows it."""
    return "–" if value is None else f"{value:,.0f}" if isinstance(value, int | float) else str(value)
