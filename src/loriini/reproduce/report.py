"""The pages of a reproduction: one for each item, and an overview; each made from results alone."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loriini.analyze import page as p
from loriini.analyze.page import Html
from loriini.analyze.report import REPORT, write_page
from loriini.analyze.wording import listing, sentence_case
from loriini.atomic import write_json
from loriini.reproduce.charts import draw
from loriini.reproduce.claims.measured import at
from loriini.reproduce.claims.wording import counted, measured_text, number, range_text
from loriini.reproduce.experiments.catalog import EXPERIMENTS
from loriini.reproduce.results import RESULTS, mark, read_items

Results = Mapping[str, Any]
NOTHING = "–"
CLAIM_HEAD = ("claim", "mean and interval", "claimed range", "verdict")
REASON_HEAD = ("with the further runs", "mean and interval", "expected if this is the reason", "verdict")
"""Of the table of a reason."""


def write_item_report(results: Results, folder: Path) -> Path:
    """Write an item's `report.html` into its folder."""
    sections = {
        "Claims": claims_table(results),
        "Likely reasons": reasons(results),
        "Pictures": pictures(results),
        "Published and measured": comparison(results),
        "Trainings": cells(results),
        "How it was made": how(results),
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
        "The finding holds if every claim does. A claim holds where its 95 % interval lies in the claimed "
        "range. The interval covers seeds (Student's t, differences paired by seed) and, where the claim is "
        "about held-out text, also this text (bootstrap, the same documents for all models), added in "
        "quadrature. A finding of m claims does not hold if one claim fails with an interval of 1 − 0.05/m."
    )


def claims_table(results: Results) -> Html | None:
    """Every claim with what was measured, the range claimed, and its verdict."""
    if not results["claims"]:
        return None
    return p.table(CLAIM_HEAD, claim_rows(results["claims"]))


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> Iterable[list[str]]:
    """Quantity, measurement, range and verdict of each; the training text first where there are several."""
    several = len({claim["text"] for claim in claims}) > 1
    for claim in claims:
        text = f"{claim['text']}: " if several else ""
        yield [f"{text}{claim['quantity']}", measured_text(claim), range_text(claim), claim["verdict"]]


def reasons(results: Results) -> Html | None:
    """Why the finding may not hold, and what further runs say of it."""
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


def pictures(results: Results) -> Html | None:
    """All charts."""
    if not results["charts"]:
        return None
    drawn = (p.figure(draw(chart), caption(chart)) for chart in results["charts"])
    return p.pair(*drawn)


def caption(chart: Mapping[str, Any]) -> str:
    """What a chart shows."""
    text = f" on text in place of {chart['text']}" if chart["text"] else ""
    has_bands = any("low" in series for series in chart.get("series", {}).values())
    seeds = "Line: mean over seeds; band: lowest to highest seed. " if has_bands else ""
    shown = {
        "lines": f"{seeds}{chart.get('y', '')}",
        "dots": "Dot: mean; line: 95 % interval.",
        "tiles": "Red: more than the even share, blue: less; first seed.",
    }
    return f"{sentence_case(chart['title'])}{text}. {shown[chart['kind']]}"


def comparison(results: Results) -> Html | None:
    """The published values beside what was measured, for each text."""
    tables = []
    for text, measured in results["measured"].items():
        columns = list(dict.fromkeys(name for row in measured.values() for name in row))
        if columns:
            rows = [
                [marked(results, row), *(plus_minus(of_row.get(name)) for name in columns)]
                for row, of_row in measured.items()
            ]
            tables += [
                p.element("h3", f"Measured{f', on text in place of {text}' if text else ''}"),
                p.table(["", *columns], rows),
            ]
    printed = results["published"]
    if printed:
        columns = list(dict.fromkeys(value["column"] for value in printed))
        names = list(dict.fromkeys(value["row"] for value in printed))
        rows = [[name, *(published_text(printed, name, column) for column in columns)] for name in names]
        head = [f"{name}{in_unit(printed, name)}" for name in columns]
        tables += [p.element("h3", "Published"), p.table(["", *head], rows)]
    return p.join(*tables) if tables else None


def marked(results: Results, row: str) -> str:
    """A row's name, and whether its routing sees later tokens."""
    return row + next((mark(cell) for cell in results["cells"] if cell["row"] == row), "")


def in_unit(printed: Sequence[Mapping[str, Any]], column: str) -> str:
    """The unit of the published values of a column, in brackets; empty for counts."""
    units = dict.fromkeys(v["unit"] for v in printed if v["column"] == column and v["unit"])
    return f" [{', '.join(units)}]" if units else ""


def plus_minus(found: Mapping[str, float | None] | None) -> str:
    """A mean and half of its interval."""
    if found is None or found["mean"] is None:
        return NOTHING
    if found["low"] is None or found["high"] is None:
        return number(found["mean"])
    return f"{number(found['mean'])} ± {number((found['high'] - found['low']) / 2)}"


def published_text(printed: Sequence[Mapping[str, Any]], row: str, column: str) -> str:
    """The printed values of a row and column, with the version where there are two."""
    found = [value for value in printed if (value["row"], value["column"]) == (row, column)]
    if len(found) > 1:
        return ", ".join(f"{value['value']:g} ({value['paper']})" for value in found)
    return f"{found[0]['value']:g}" if found else NOTHING


def cells(results: Results) -> Html | None:
    """Every training."""
    if not results["cells"]:
        return None
    rows = [
        [
            c["row"],
            str(c["seed"]),
            c["text"],
            c["state"],
            NOTHING if (loss := at(c["measures"], ("training", "training_loss"))) is None else number(loss),
            c["folder"],
        ]
        for c in results["cells"]
    ]
    return p.table(["", "seed", "text", "state", "training loss", "folder"], rows)


def how(results: Results) -> Html:
    """Scale, text, machine and date."""
    machine = ", ".join(f"{name} {value}" for name, value in results["machine"].items())
    rows = {
        "command": command(results),
        "trainings": trained_for(results),
        "text": ", ".join(results["text"]) or "text of this machine",
        "machine": machine,
        "date": results["date"],
    }
    return p.table(["setting", "value"], ([name, value] for name, value in rows.items()))


def trained_for(results: Results) -> str:
    """The seeds of an item's trainings, and how long these are; those of reasons apart from its own."""
    further = EXPERIMENTS[results["item"]].further_runs
    own: set[tuple[int, int]] = set()
    of_reasons: set[tuple[int, int]] = set()
    for cell in results["cells"]:
        settings = cell["settings"]
        length = (settings["steps"], settings["batch_size"] * settings["length"])
        (of_reasons if cell["row"] in further else own).add(length)
    if not own:
        counts = {c["seeds"] for c in results["claims"] if c["seeds"] > 1}
        repeated = f", {listing([str(count) for count in sorted(counts)])} repetitions" if counts else ""
        return f"no training of a language model{repeated}"
    also = f"; to test likely reasons, {lengths_text(of_reasons - own)}" if of_reasons - own else ""
    return f"{results['seeds']} seed{'s' * (results['seeds'] != 1)}, {lengths_text(own)}{also}"


def lengths_text(lengths: Collection[tuple[int, int]]) -> str:
    """Steps and tokens of each."""
    return " or ".join(f"{steps:,} steps of {tokens:,} tokens" for steps, tokens in sorted(lengths))


def command(results: Results) -> str:
    """The command that makes an item's results."""
    told = f"loriini reproduce {results['item']} --scale {results['scale']} --seeds {results['seeds']}"
    return told + " --reasons" * bool(results.get("reasons"))


def headline(items: Mapping[str, Results]) -> str:
    """How many findings hold, those that are computed apart from those that are measured."""
    single = [found for name, found in items.items() if not repeats(name, items)]
    computed = [found for found in single if is_computed(found)]
    parts = {"measured": [found for found in single if found not in computed], "computed": computed}
    return "; ".join(
        f"of {len(several)} {name} finding{'s' * (len(several) != 1)} "
        f"{counted(found['verdict'] for found in several)}"
        for name, several in parts.items()
        if several
    ).capitalize()


def is_computed(found: Results) -> bool:
    """Whether an item's claims are about sizes, formulas and bytes alone, which no seed changes."""
    return bool(found["claims"]) and all(claim["exact"] for claim in found["claims"])


def repeats(item: str, items: Collection[str]) -> str:
    """The item among some of which this one is the same experiment; empty without one."""
    return EXPERIMENTS[item].same_as if EXPERIMENTS[item].same_as in items else ""


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
