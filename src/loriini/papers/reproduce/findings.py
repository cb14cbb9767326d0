"""The findings page of the documentation, as Markdown with pictures, from files of results alone."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_text
from loriini.common.errors import InputError
from loriini.common.json_file import read_object
from loriini.common.progress import warn
from loriini.papers.published import ITEMS
from loriini.papers.reproduce.charts import Chart, draw
from loriini.papers.reproduce.claims.claim import UNDECIDED, JudgedClaim, judged, overall
from loriini.papers.reproduce.claims.reasons import support
from loriini.papers.reproduce.claims.wording import FAILING, counted, sentence
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS, ITEM_ORDER
from loriini.papers.reproduce.results import RESULTS, as_published, outdated, read_items
from loriini.papers.reproduce.wording import (
    CLAIM_HEAD,
    REASON_HEAD,
    caption,
    claim_rows,
    columns_of,
    command,
    headline,
    in_unit,
    machine_text,
    marked,
    plus_minus,
    published_text,
    repeats,
    trained_for,
)
from loriini.reporting.plots import GREY
from loriini.reporting.wording import NO_VALUE, listing

Items = Mapping[str, Any]
MOST_COLUMNS = 8
"""Columns of a table; more are left out, the report has them."""
MOST_PICTURES = 4
"""Pictures of an item; more are left out, the report has them."""
MOST_CLAIMS = 6
"""Claims that are shown without a click."""
PICTURE_END = "<!-- {} -->\n"
"""The last line of each picture, with the digest of what it is drawn from."""
OUR_PICTURE = re.compile(re.escape(PICTURE_END).replace(r"\{\}", "[0-9a-f]{64}") + r"\Z")
REMEDY = "give the --out of `loriini reproduce`"
HEAD = f"""Tables and figures of the papers, measured here: does each finding hold? \
[Reproduce](reproduce.md) describes the scales and how findings are tested. Made by \
`loriini reproduce --page` from result files; nothing here is written by hand.

A finding is a list of claims. A claim is a quantity and the range in which it should lie.

| verdict | on a claim | on a finding |
|---|---|---|
| holds | its 95 % interval lies in the range | all of its claims hold |
| does not hold | its 95 % interval lies outside | {FAILING} |
| undecided | its 95 % interval crosses a bound | otherwise |

- **Intervals** cover seeds and, for losses and questions on held-out text, the choice of this text. The \
two are added in quadrature. Those of routes, such as the agreement of experts and domains, cover seeds \
alone. The held-out text of a domain of long documents, as books and repositories are, begins in few of \
them; the interval does not cover another choice of these.
- **Bounds** that the paper does not state, such as how weak an agreement of experts and domains is, are ours.
- **Many claims.** A finding of many claims is tested with a wider interval, so that at most one true \
finding in twenty is said not to hold.
- **±** is half of a 95 % interval over seeds or rounds.
- **Rows that see later tokens** are marked, since their losses are too low. They can show that such a row \
is worse than a causal one, not that it is better or equal. Two such rows may differ in how much they use of \
later tokens."""


def write_findings(folder: Path, page: Path) -> Path:
    """Write the page of all results in a folder, and its pictures into a folder next to the page.

    The same results give the same bytes. Pictures of an earlier page are removed. InputError without results.
    """
    if not page.suffix:
        raise InputError(f"--page {page}: the pictures' folder has this name; give one that ends in .md")
    scales = read_scales(folder)
    pictures = page.with_suffix("")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, findings_page(scales, pictures.name))
    pictures.mkdir(exist_ok=True)
    drawn = {f"{name}.svg": picture(chart) for name, chart in shown_charts(scales)}
    for path in pictures.glob("*.svg"):
        if path.name not in drawn and OUR_PICTURE.search(path.read_text(errors="replace")):
            path.unlink()
    for name, svg in drawn.items():
        write_text(pictures / name, svg)
    return page


def read_scales(folder: Path) -> list[Items]:
    """The results of `loriini reproduce` in its --out, or in every JSON file of a folder, a scale each.

    Those of an earlier definition of their scale are left out.
    """
    scales: list[Items] = []
    if (folder / RESULTS).exists():
        scales = [read_items(folder)] if read_file(folder / RESULTS) else []
    else:
        scales = [read_file(file) for file in sorted(folder.glob("*.json"))]
    current = [kept for items in scales if (kept := current_items(items))]
    if not current:
        raise InputError(f"{folder}: no results of `loriini reproduce` here; {REMEDY}")
    return current


def current_items(items: Items) -> Items:
    """The items whose trainings are those of their scale as it is defined today, with the paper's words."""
    reasons = {name: outdated(items[name]) for name in ITEM_ORDER if name in items}
    for reason in filter(None, reasons.values()):
        warn(f"{reason}; left out")
    return {name: reassessed(name, items[name]) for name, reason in reasons.items() if not reason}


def reassessed(name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """An item's results with the paper's words, and with verdicts and sentences by today's rules."""
    claims = [rejudged(claim) for claim in item["claims"]]
    reasons = [{**reason, "claims": list(map(rejudged, reason["claims"]))} for reason in item["reasons"]]
    verdict = overall(claims)
    return {
        **item,
        **as_published(name),
        "claims": claims,
        "reasons": [{**reason, "verdict": support(reason["claims"])} for reason in reasons],
        "verdict": verdict,
        "sentence": sentence(verdict, claims, item["scale"]),
    }


def rejudged(claim: JudgedClaim) -> dict[str, Any]:
    """A stored claim with the verdict of today's rules; what was undecided stays undecided."""
    return {**claim, "verdict": UNDECIDED if claim["verdict"] == UNDECIDED else judged(claim)}


def read_file(file: Path) -> Items:
    """The results of a file by item; InputError for another file."""
    items = read_object(file, REMEDY).get("items")
    if not isinstance(items, dict) or not all(map(is_results, items.values())):
        raise InputError(f"{file}: no results of `loriini reproduce`; {REMEDY}")
    return items


def is_results(value: Any) -> bool:
    """Whether a value may be the results of an item."""
    needed = {"item", "scale", "seeds", "machine", "date", "cells", "measured", "claims", "verdict"}
    explained = {"open_in_the_paper", "differs", "reasons"}
    return isinstance(value, dict) and needed | explained <= value.keys()


def shown_charts(scales: Sequence[Items]) -> Iterator[tuple[str, Chart]]:
    """The charts of the page by name."""
    for items in scales:
        for name in ITEM_ORDER:
            yield from charts_of(items[name]) if name in items and not repeats(name, items) else ()


def charts_of(item: Mapping[str, Any]) -> Iterator[tuple[str, Chart]]:
    """An item's charts that the page shows, by name."""
    for i, chart in enumerate(item.get("charts", [])[:MOST_PICTURES], 1):
        yield f"{anchor(item)}-{i}", chart


def picture(chart: Chart) -> str:
    """A chart as a file of its own."""
    svg = re.sub(r"<[^>]*>", shortened, draw(chart)).replace("currentColor", GREY)
    return f"{svg.rstrip()}\n{PICTURE_END.format(chart_digest(chart))}"


def shortened(tag: re.Match[str]) -> str:
    """A tag of SVG with two decimals in its numbers."""
    return re.sub(r"(\.\d\d)\d+", r"\1", tag.group())


def chart_digest(chart: Chart) -> str:
    """A hash of a chart's contents."""
    return sha256(json.dumps(chart, sort_keys=True).encode()).hexdigest()


def findings_page(scales: Sequence[Items], pictures: str) -> str:
    """The page of the results of several scales, with its pictures in the folder `pictures`."""
    return "\n\n".join(_page(scales, pictures)) + "\n"


def _page(scales: Sequence[Items], pictures: str) -> Iterator[str]:
    yield "# Findings of the four papers"
    yield HEAD
    for items in scales:
        yield from _overview(items)
    for items in scales:
        for name in ITEM_ORDER:
            if name in items and (other := repeats(name, items)):
                yield from _repeated(items[name], items[other])
            elif name in items:
                yield from _item(items[name], pictures)


def _overview(items: Items) -> Iterator[str]:
    first = next(iter(items.values()))
    yield f"## Scale {first['scale']}"
    yield f"{headline(items)}."
    if notes := [said for said in (shapes(items), rates(items), missing(items)) if said]:
        yield "\n".join(f"- {note}" for note in notes)
    yield _table(
        ["item", "finding", "verdict"],
        (
            [f"[{item['title']}](#{anchor(item)})", item["finding"], item["verdict"]]
            for name in ITEM_ORDER
            if (item := items.get(name)) and not repeats(name, items)
        ),
    )


def shapes(items: Items) -> str:
    """The shapes of the models that stand for the papers'."""
    models = {
        trained["run"].partition("-")[0]: trained["settings"]["model"]
        for item in items.values()
        for trained in item["cells"]
    }
    named = [
        f"{name} (width {model['hidden_size']}, {model['num_hidden_layers']} layers)"
        for name, model in sorted(models.items())
    ]
    return f"Models have the papers' names and are far smaller: {listing(named)}." if named else ""


def rates(items: Items) -> str:
    """The learning rates of the items' own trainings, by the models' width."""
    rates_by_width = defaultdict[int, set[float]](set)
    for name, item in items.items():
        own_runs = EXPERIMENTS[name].runs
        for settings in (cell["settings"] for cell in item["cells"] if cell["row"] in own_runs):
            rates_by_width[settings["model"]["hidden_size"]].add(settings["optimizer"]["learning_rate"])
    distinct = set().union(*rates_by_width.values())
    if len(rates_by_width) > 1 and len(distinct) == 1:
        return (
            f"All models are trained with one learning rate, {distinct.pop():g}. It may suit some designs "
            "better than others, and smaller models better than larger ones "
            "([substitutions](reproduce.md#substitutions)): compare with care."
        )
    by_width = "; ".join(
        f"{', '.join(f'{rate:g}' for rate in sorted(at_width))} at width {width}"
        for width, at_width in sorted(rates_by_width.items())
    )
    return f"Learning rates: {by_width}." if by_width else ""


def missing(items: Items) -> str:
    """The items without results, or with those of an earlier definition alone."""
    names = [f"{ITEMS[name].title} ({name})" for name in ITEM_ORDER if name not in items]
    return f"Not measured, or not as defined today: {listing(names)}." if names else ""


def _repeated(item: Mapping[str, Any], original: Mapping[str, Any]) -> Iterator[str]:
    """An item that is another's experiment."""
    yield from _heading(f"{item['title']} ({item['source']})", item)
    yield f"The same experiment as [{original['source']}](#{anchor(original)}): {original['verdict']}."


def _item(item: Mapping[str, Any], pictures: str) -> Iterator[str]:
    yield from _heading(item["title"], item)
    yield f"**The paper** ({item['source']}): {item['finding']}"
    yield f"**{item['verdict'].capitalize()}.** {item['sentence']}"
    for reason in item["reasons"]:
        yield from _reason(reason)
    yield "\n".join(f"- {note}" for note in notes(item))
    for name, chart in charts_of(item):
        yield f"![{caption(chart)}]({pictures}/{name}.svg)"
    if item["claims"]:
        yield from _claims(item["claims"])
    for text, measured in item["measured"].items():
        yield from _values(item, text, measured)


def _heading(title: str, item: Mapping[str, Any]) -> Iterator[str]:
    """A heading with an anchor that every viewer of Markdown understands."""
    yield f'<a id="{anchor(item)}"></a>'
    yield f"### {title}"


def notes(item: Mapping[str, Any]) -> Iterator[str]:
    """What the paper leaves open, what is different here, and how it was made, a sentence each."""
    for name, sentences in (("In the paper", item["open_in_the_paper"]), ("Here", item["differs"])):
        yield from (f"{name}: {text}." for text in sentences.split("; ") if text)
    yield f"Made with {made(item)}."
    yield f"Command: `{command(item)}`"


def made(item: Mapping[str, Any]) -> str:
    """Seeds, lengths of training, machine and date of an item's results."""
    return f"{trained_for(item)}, on {item['date']}; {machine_text(item)}"


def _reason(reason: Mapping[str, Any]) -> Iterator[str]:
    """A reason with what its further runs measured, and what it would be if this is the reason."""
    yield f"Likely reason: {reason['name']}. **{reason['verdict'].capitalize()}** by further runs:"
    yield _table(REASON_HEAD, claim_rows(reason["claims"]))


def _claims(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """All claims, folded if they are many."""
    table = _table(CLAIM_HEAD, claim_rows(claims))
    if len(claims) <= MOST_CLAIMS:
        yield table
        return
    summary = f"Of {len(claims)} claims {counted(c['verdict'] for c in claims)}."
    yield f'<details markdown="1">\n<summary>{summary}</summary>'
    yield table
    yield "</details>"


def _values(item: Mapping[str, Any], text: str, measured: Mapping[str, Any]) -> Iterator[str]:
    """What was measured of each row, with the published value in brackets where the column is printed."""
    columns = columns_of(measured)[:MOST_COLUMNS]
    if not columns:
        return
    printed = item["published"]

    def both(row: str, column: str) -> str:
        theirs = published_text(printed, row, column)
        return plus_minus(measured[row].get(column)) + (f" [{theirs}]" if theirs != NO_VALUE else "")

    rows = {row: [both(row, column) for column in columns] for row in measured}
    bracketed = [any("[" in text for text in column) for column in zip(*rows.values(), strict=True)]
    place = f" on text in place of {text}" if text else ""
    brackets = " In brackets: what the paper printed, at its own scale, with the unit."
    yield f"Measured{place}.{brackets if any(bracketed) else ''}"
    units = (in_unit(printed, column) * shown for column, shown in zip(columns, bracketed, strict=True))
    head = ["", *map("".join, zip(columns, units, strict=True))]
    yield _table(head, ([marked(item, row), *texts] for row, texts in rows.items()))


def _table(head: Sequence[str], rows: Any) -> str:
    body = (f"| {' | '.join(text.replace('|', '/') for text in row)} |" for row in rows)
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body])


def anchor(item: Mapping[str, Any]) -> str:
    """The id of an item's section."""
    return f"{item['item']}-{item['scale']}"
