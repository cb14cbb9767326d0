"""The findings page of the documentation, as Markdown, from files of results alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.json_file import read_object
from loriini.reproduce.claims import estimate_text, range_text
from loriini.reproduce.items import FIRST
from loriini.reproduce.report import VERDICTS, cell, command, published_cell
from loriini.reproduce.results import RESULTS

MOST_COLUMNS = 8
"""Columns of a table; more are left out, the report has them."""


def findings_page(folder: Path) -> str:
    """The page of all results in a folder: its `results.json`, or every JSON file there, a scale each.

    The same files give the same bytes. InputError without any.
    """
    files = [folder / RESULTS] if (folder / RESULTS).exists() else sorted(folder.glob("*.json"))
    scales = [_items(file) for file in files]
    if not any(scales):
        raise InputError(f"{folder}: no results of `loriini reproduce` here; give its --out")
    return "\n".join(_page([items for items in scales if items])) + "\n"


def _items(file: Path) -> Mapping[str, Any]:
    remedy = "give the --out of `loriini reproduce`"
    items = read_object(file, remedy).get("items")
    if not isinstance(items, dict) or not all("verdict" in found for found in items.values()):
        raise InputError(f"{file}: no results of `loriini reproduce`; {remedy}")
    return items


def _page(scales: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Findings of the four papers"
    yield ""
    yield (
        "Made by `loriini reproduce --page` from result files; nothing here is written by hand. A finding "
        "holds if every one of its claims does, and does not hold if one claim does not; a claim is "
        "undecided where its 95 % interval over seeds crosses the bound. See "
        "[Reproduce](reproduce.md) for the scales."
    )
    for items in scales:
        yield from _overview(items)
    for items in scales:
        for name in FIRST:
            if name in items:
                yield from _item(items[name])


def _overview(items: Mapping[str, Any]) -> Iterator[str]:
    first = next(iter(items.values()))
    counts = {v: sum(found["verdict"] == v for found in items.values()) for v in VERDICTS}
    yield ""
    yield f"## Scale {first['scale']}"
    yield ""
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    machine = ", ".join(f"{key} {value}" for key, value in first["machine"].items())
    yield f"{len(items)} items: {counted}. Seeds: {first['seeds']}. Machine: {machine}."
    yield ""
    yield from _table(
        ["item", "finding", "verdict"],
        (
            [f"[{found['title']}](#{anchor(found)})", found["finding"], found["verdict"]]
            for name in FIRST
            if (found := items.get(name))
        ),
    )


def _item(found: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"### {found['title']} {{ #{anchor(found)} }}"
    yield ""
    yield f"`{command(found)}` ({found['source']})"
    yield ""
    yield f"The paper: {found['finding']}"
    yield ""
    yield f"**{found['verdict'].capitalize()}.** {found['sentence']}"
    notes = [f"In the paper: {found['open_in_the_paper']}."] * bool(found["open_in_the_paper"])
    notes += [f"Here: {found['differs']}."] * bool(found["differs"])
    if notes:
        yield ""
        yield " ".join(notes)
    if found["claims"]:
        yield ""
        yield from _table(
            ["claim", "mean and interval", "claimed", "verdict"],
            ([c["says"], estimate_text(c), range_text(c), c["verdict"]] for c in found["claims"]),
        )
    for text, measured in found["measured"].items():
        yield from _values(found, text, measured)


def _values(found: Mapping[str, Any], text: str, measured: Mapping[str, Any]) -> Iterator[str]:
    """What was measured of each row, with the published value in brackets where the column is printed."""
    columns = list(dict.fromkeys(name for row in measured.values() for name in row))[:MOST_COLUMNS]
    if not columns:
        return
    printed = found["published"]

    def both(row: str, column: str) -> str:
        theirs = published_cell(printed, row, column)
        return cell(measured[row].get(column)) + (f" [{theirs}]" if theirs != "–" else "")

    yield ""
    place = f" on text in the place of {text}" if text else ""
    yield f"Measured{place}; in brackets as published, at the papers' scale."
    yield ""
    yield from _table(["", *columns], ([row, *(both(row, column) for column in columns)] for row in measured))


def _table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(text.replace('|', '/') for text in row)} |"


def anchor(found: Mapping[str, Any]) -> str:
    """The id of an item's section."""
    return f"{found['item']}-{found['scale']}"
