"""Printing from many processes, and tables."""

import json
import os
from collections.abc import Sequence
from typing import Any, TextIO

from loriini.common.errors import printable


def print_once(text: object, file: TextIO | None = None, every_node: bool = False) -> None:
    """Print in only one of the processes that torchrun started: the first, or the first of every node."""
    if os.environ.get("LOCAL_RANK" if every_node else "RANK", "0") == "0":
        print(text, file=file)


def print_rows(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Print rows as JSON with all their keys, or as a table of `columns`."""
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print(format_table(columns, [[_cell(row[column]) for column in columns] for row in rows]))


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], align_right: bool = False) -> str:
    """A table with aligned columns; `align_right`, for numbers, leaves the first column at the left.

    Cells are made printable: they may be names from other people's files.
    """
    shown = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        cells = zip(row, widths, strict=True)
        aligned = (c.rjust(w) if align_right and i else c.ljust(w) for i, (c, w) in enumerate(cells))
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:,.0f}" if isinstance(value, int | float) else str(value)
