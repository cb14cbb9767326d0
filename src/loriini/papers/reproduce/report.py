"""Results in words, from results alone: a line per item for terminal and page, and a report per item."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.papers.reproduce.charts import draw
from loriini.papers.reproduce.results import RESULTS, mark, read_items
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import NO_VALUE, minus, sentence_case

Results = Mapping[str, Any]
"""The results of an item, as `results.item_results` makes them."""
LINE_HEAD = ("item", "finding", "verdict", "decided by")
CLAIM_HEAD = ("claim", "mean", "95 % interval", "claimed", "verdict")
CELL_KEYS = ("row", "seed", "text", "state", "folder")
HOW_TO_READ = (
    "A finding is a list of claims, each a quantity and the range in which it should lie. It holds if all of "
    "its claims hold, and does not hold if one of its m claims fails with an interval of 1 − 0.05/m. A claim "
    "holds if its 95 % interval lies in the range, and does not hold if it lies outside. Intervals cover "
    "seeds and, for losses on held-out text, the choice of this text."
)


def item_line(item: Results) -> list[str]:
    """An item in one line: its id, finding, verdict, and the claim that decided."""
    decided = (
        "nothing measured" if item["decided_by"] is None else in_words(item["claims"][item["decided_by"]])
    )
    return [item["item"], item["finding"], item["verdict"], decided]


def in_words(claim: Mapping[str, Any]) -> str:
    """A claim with what was measured and its range: a − b: −0.03 (−0.05 to −0.01) nats, claimed below 0."""
    unit = f" {claim['unit']}" * bool(claim["unit"])
    interval = f" ({interval_text(claim)})" * (claim["interval"][0] is not None and not claim["exact"])
    return f"{claim['quantity']}: {number(claim['mean'])}{interval}{unit}, claimed {range_text(claim)}"


def interval_text(claim: Mapping[str, Any]) -> str:
    """The interval that decides, if there is one: −0.05 to −0.01."""
    low, high = claim["interval"]
    return NO_VALUE if low is None or claim["exact"] else f"{number(low)} to {number(high)}"


def range_text(claim: Mapping[str, Any]) -> str:
    """The range that a claim states: below 0, at least 0.5, −0.02 to 0.02."""
    low, high = claim["range"]
    if low is None and high is None:
        return "nothing"
    if low is None:
        return f"at most {number(high)}" if high else "below 0"
    if high is None:
        return f"at least {number(low)}" if low else "above 0"
    return f"{number(low)} to {number(high)}" if low != high else f"exactly {number(low)}"


def number(value: float | None) -> str:
    """Three significant digits; whole from 1,000 on, three decimals below 1; NO_VALUE for None."""
    if value is None:
        return NO_VALUE
    size = abs(value)
    return minus(f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}" if size >= 1 else f"{value:.3f}")


def _headline(items: Mapping[str, Results]) -> str:
    found = [item["verdict"] for item in items.values()]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in dict.fromkeys(sorted(found)))
    return f"{len(found)} finding{'s' * (len(found) != 1)}: {counts}"


def write_overview(out: Path) -> None:
    """Write `results.json`, the results of all items of a folder without their charts, and their pages."""
    items = read_items(out)
    plain = {name: {k: v for k, v in item.items() if k != "charts"} for name, item in items.items()}
    write_json(out / RESULTS, {"items": plain}, sort_keys=False)
    rows = [
        [p.element("a", name, href=f"{name}/{REPORT}"), *line]
        for name, (_, *line) in zip(items, map(item_line, items.values()), strict=True)
    ]
    opening = p.join(p.element("h1", _headline(items)), p.note(HOW_TO_READ))
    write_page(out / REPORT, "Loriini: findings", opening, {"Findings": p.table(LINE_HEAD, rows)}.items())


def write_item_report(results: Results, folder: Path) -> None:
    """Write an item's `report.html` into its folder."""
    pictures = [p.figure(draw(chart), _caption(chart)) for chart in results["charts"]]
    sections = {
        "Claims": p.table(CLAIM_HEAD, claim_rows(results["claims"])),
        "Pictures": p.pair(*pictures) if pictures else None,
        "Published and measured": p.join(*measured_tables(results), *published_table(results)),
        "Trainings": p.table(
            ("", "seed", "text in place of", "state", "folder"),
            ([str(cell[key]) for key in CELL_KEYS] for cell in results["cells"]),
        ),
        "How it was made": p.table(("setting", "value"), _how_it_was_made(results)),
    }
    opening = p.join(
        p.element("p", f"Loriini · {results['item']} · {results['source']}", class_="kicker"),
        p.element("h1", results["title"]),
        p.paragraph(p.strong("The paper finds: "), results["finding"]),
        p.paragraph(p.strong(f"{sentence_case(results['verdict'])}: "), item_line(results)[-1]),
        p.note(*remarks(results)),
    )
    write_page(folder / REPORT, f"Loriini: {results['title']}", opening, sections.items())


def remarks(results: Results) -> Iterator[str]:
    """What the paper leaves open, what differs from it, and how to read the verdict."""
    if results["open_in_the_paper"]:
        yield f"In the paper: {results['open_in_the_paper']}. "
    if results["differs"]:
        yield f"Here: {results['differs']}. "
    yield HOW_TO_READ


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Quantity, mean, interval, range and verdict; the training text first where there are several."""
    several = len({claim["text"] for claim in claims}) > 1
    for claim in claims:
        text = f"{claim['text']}: " if several else ""
        mean = f"{number(claim['mean'])} {claim['unit']}".strip()
        shown = (mean, interval_text(claim), range_text(claim), claim["verdict"])
        yield [f"{text}{claim['quantity']}", *shown]


def _caption(chart: Mapping[str, Any]) -> str:
    text = f" on text in place of {chart['text']}" if chart["text"] else ""
    shown = {
        "lines": "Lines over training: mean over seeds; band: lowest to highest seed",
        "dots": "Dot: mean; line: 95 % interval over seeds",
        "tiles": "Red: more than the even share, blue: less; first seed",
    }
    return f"{sentence_case(chart['title'])}{text}. {shown[chart['kind']]}."


def measured_tables(results: Results) -> Iterator[Html]:
    """A heading and a table of means and half intervals for each text with measurements."""
    marks = {cell["row"]: mark(cell) for cell in results["cells"]}
    for text, measured in results["measured"].items():
        if columns := list(dict.fromkeys(name for of_row in measured.values() for name in of_row)):
            yield p.element("h3", f"Measured{f', on text in place of {text}' if text else ''}")
            rows = (
                [row + marks.get(row, ""), *(plus_minus(of_row.get(name)) for name in columns)]
                for row, of_row in measured.items()
            )
            yield p.table(["", *columns], rows)


def plus_minus(interval: Mapping[str, float | None] | None) -> str:
    """A mean and half of its interval."""
    if interval is None:
        return NO_VALUE
    if interval["low"] is None or interval["high"] is None:
        return number(interval["mean"])
    return f"{number(interval['mean'])} ± {number((interval['high'] - interval['low']) / 2)}"


def published_table(results: Results) -> Iterator[Html]:
    """A heading and a table, if the paper prints values; a cell that was printed twice has both."""
    if printed := results["published"]:
        columns = dict.fromkeys((value["column"], value["unit"]) for value in printed)
        cells: dict[tuple[str, str], list[str]] = {}
        for value in printed:
            cells.setdefault((value["row"], value["column"]), []).append(f"{value['value']:g}")
        yield p.element("h3", "Published")
        rows = (
            [row, *(", ".join(cells.get((row, name), [NO_VALUE])) for name, _ in columns)]
            for row in dict.fromkeys(value["row"] for value in printed)
        )
        head = (f"{name} [{unit}]" if unit else name for name, unit in columns)
        yield p.table(["", *head], rows)


def _how_it_was_made(results: Results) -> Iterator[list[str]]:
    command = f"loriini reproduce {results['item']} --scale {results['scale']} --seeds {results['seeds']}"
    yield ["command", f"{command}{' --text PATH…' * bool(results['text'])} --out DIR"]
    yield ["text", ", ".join(results["text"]) or "text of this machine"]
    yield ["machine", ", ".join(f"{name} {value}" for name, value in results["machine"].items())]
    yield ["date", results["date"]]
