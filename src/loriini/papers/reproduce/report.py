"""The pages of a reproduction: one for each item, and an overview; each made from results alone."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from loriini.common.atomic import write_json
from loriini.papers.reproduce.charts import draw
from loriini.papers.reproduce.claims.measured import at
from loriini.papers.reproduce.claims.wording import FAILING, number
from loriini.papers.reproduce.results import RESULTS, read_items
from loriini.papers.reproduce.wording import (
    CLAIM_HEAD,
    REASON_HEAD,
    Results,
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
    trained_for,
)
from loriini.reporting import page as p
from loriini.reporting.page import REPORT, Html, write_page
from loriini.reporting.wording import NO_VALUE, sentence_case


def write_item_report(results: Results, folder: Path) -> Path:
    """Write an item's `report.html` into its folder."""
    sections = {
        "Claims": claims_table(results),
        "Likely reasons": reasons_section(results),
        "Pictures": pictures_section(results),
        "Published and measured": comparison_section(results),
        "Trainings": cells_section(results),
        "How it was made": how_section(results),
    }
    opening = p.join(
        p.element("p", f"Loriini · {results['item']} · {results['source']}", class_="kicker"),
        p.element("h1", results["title"]),
        p.paragraph(p.strong("The paper finds: "), results["finding"]),
        p.paragraph(p.strong("Measured: "), results["sentence"]),
        p.note(*remarks(results)),
    )
    return write_page(folder / REPORT, f"Loriini: {results['title']}", opening, sections.items())


def remarks(results: Results) -> Iterable[str]:
    """What the paper leaves open, what differs from it, and how to read the verdict."""
    if results["open_in_the_paper"]:
        yield f"In the paper: {results['open_in_the_paper']}. "
    if results["differs"]:
        yield f"Here: {results['differs']}. "
    yield (
        f"The finding holds if every claim does, and does not hold if {FAILING}. A claim holds where its "
        "95 % interval lies in the claimed range. The interval covers seeds (Student's t, differences paired "
        "by seed) and, where the claim is about held-out text, also this text (bootstrap, the same documents "
        "for all models), added in quadrature."
    )


def claims_table(results: Results) -> Html | None:
    """Every claim with what was measured, the range claimed, and its verdict."""
    if not results["claims"]:
        return None
    return p.table(CLAIM_HEAD, claim_rows(results["claims"]))


def reasons_section(results: Results) -> Html | None:
    """Why the finding may not hold, and what further runs show about it."""
    if not results["reasons"]:
        return None
    tables = (
        p.join(
            p.element("h3", f"{sentence_case(reason['name'])}: {reason['verdict']}"),
            p.table(REASON_HEAD, claim_rows(reason["claims"])),
        )
        for reason in results["reasons"]
    )
    remark = "Further trainings test each reason. It is supported if all that is expected of them holds."
    return p.join(p.note(remark), *tables)


def pictures_section(results: Results) -> Html | None:
    """All charts."""
    if not results["charts"]:
        return None
    drawn = (p.figure(draw(chart), caption(chart)) for chart in results["charts"])
    return p.pair(*drawn)


def comparison_section(results: Results) -> Html | None:
    """The published values next to what was measured, for each text."""
    tables = [*measured_tables(results), *published_table(results)]
    return p.join(*tables) if tables else None


def measured_tables(results: Results) -> Iterator[Html]:
    """A heading and a table for each text with measurements."""
    for text, measured in results["measured"].items():
        if columns := columns_of(measured):
            yield p.element("h3", f"Measured{f', on text in place of {text}' if text else ''}")
            rows = (
                [marked(results, row), *(plus_minus(of_row.get(name)) for name in columns)]
                for row, of_row in measured.items()
            )
            yield p.table(["", *columns], rows)


def published_table(results: Results) -> Iterator[Html]:
    """A heading and a table, if the paper prints values."""
    if printed := results["published"]:
        columns, names = (list(dict.fromkeys(value[key] for value in printed)) for key in ("column", "row"))
        yield p.element("h3", "Published")
        rows = ([name, *(published_text(printed, name, column) for column in columns)] for name in names)
        yield p.table(["", *(f"{name}{in_unit(printed, name)}" for name in columns)], rows)


def cells_section(results: Results) -> Html | None:
    """Every training."""
    if not results["cells"]:
        return None
    rows = [
        [
            c["row"],
            str(c["seed"]),
            c["text"],
            c["state"],
            NO_VALUE if (loss := at(c["measures"], ("training", "training_loss"))) is None else number(loss),
            c["folder"],
        ]
        for c in results["cells"]
    ]
    return p.table(["", "seed", "text in place of", "state", "training loss", "folder"], rows)


def how_section(results: Results) -> Html:
    """Scale, text, machine and date."""
    rows = {
        "command": command(results),
        "trainings": trained_for(results),
        "text": ", ".join(results["text"]) or "text of this machine",
        "machine": machine_text(results),
        "date": results["date"],
    }
    return p.table(["setting", "value"], ([name, value] for name, value in rows.items()))


def write_overview(out: Path) -> Path:
    """Write `results.json`, the results of all items of a folder without their charts, and `report.html`."""
    items = read_items(out)
    without_charts = {
        name: {k: v for k, v in found.items() if k != "charts"} for name, found in items.items()
    }
    write_json(out / RESULTS, {"items": without_charts}, sort_keys=False)
    rows = [
        [
            p.element("a", found["title"], href=f"{name}/{REPORT}"),
            name,
            found["verdict"],
            found["sentence"],
        ]
        for name, found in items.items()
    ]
    opening = p.join(
        p.element("p", "Loriini · the four papers, reproduced", class_="kicker"),
        p.element("h1", headline(items)),
    )
    sections = {"Findings": p.table(["", "item", "verdict", "measured"], rows)}
    return write_page(out / REPORT, "Loriini: findings of four papers", opening, sections.items())
