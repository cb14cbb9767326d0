"""Results in words that the report and the findings page share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from loriini.papers.reproduce.claims.wording import counted, measured_text, number, range_text
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.results import mark
from loriini.reporting.wording import NO_VALUE, listing, sentence_case

Results = Mapping[str, Any]
"""Those of an item, as `results.item_results` makes them."""
CLAIM_HEAD = ("claim", "mean and interval", "claimed range", "verdict")
REASON_HEAD = ("with the further runs", "mean and interval", "expected if this is the reason", "verdict")
"""The head of the table of a reason."""


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> Iterable[list[str]]:
    """Quantity, measurement, range and verdict of each; the training text first where there are several."""
    several = len({claim["text"] for claim in claims}) > 1
    for claim in claims:
        text = f"{claim['text']}: " if several else ""
        yield [f"{text}{claim['quantity']}", measured_text(claim), range_text(claim), claim["verdict"]]


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


def marked(results: Results, row: str) -> str:
    """A row's name, and whether its routing sees later tokens."""
    return row + next((mark(cell) for cell in results["cells"] if cell["row"] == row), "")


def columns_of(measured: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns of a table of results, by row and column, in their order."""
    return list(dict.fromkeys(name for of_row in measured.values() for name in of_row))


def in_unit(printed: Sequence[Mapping[str, Any]], column: str) -> str:
    """The unit of the published values of a column, in brackets; empty for counts."""
    units = dict.fromkeys(v["unit"] for v in printed if v["column"] == column and v["unit"])
    return f" [{', '.join(units)}]" if units else ""


def plus_minus(interval: Mapping[str, float | None] | None) -> str:
    """A mean and half of its interval."""
    if interval is None or interval["mean"] is None:
        return NO_VALUE
    if interval["low"] is None or interval["high"] is None:
        return number(interval["mean"])
    return f"{number(interval['mean'])} ± {number((interval['high'] - interval['low']) / 2)}"


def published_text(printed: Sequence[Mapping[str, Any]], row: str, column: str) -> str:
    """The printed values of a row and column, with the version where there are two."""
    values = [value for value in printed if (value["row"], value["column"]) == (row, column)]
    if len(values) > 1:
        return ", ".join(f"{value['value']:g} ({value['paper']})" for value in values)
    return f"{values[0]['value']:g}" if values else NO_VALUE


def trained_for(results: Results) -> str:
    """The seeds of an item's trainings, and how long these are; those of reasons apart from its own."""
    further = EXPERIMENTS[results["item"]].further_runs
    lengths: set[tuple[int, int]] = set()
    lengths_of_reasons: set[tuple[int, int]] = set()
    for cell in results["cells"]:
        settings = cell["settings"]
        length = (settings["steps"], settings["batch_size"] * settings["length"])
        (lengths_of_reasons if cell["row"] in further else lengths).add(length)
    if not lengths:
        counts = {c["seeds"] for c in results["claims"] if c["seeds"] > 1}
        repeated = f", {listing([str(count) for count in sorted(counts)])} repetitions" if counts else ""
        return f"no training of a language model{repeated}"
    further_lengths = lengths_of_reasons - lengths
    also = f"; to test likely reasons, {lengths_text(further_lengths)}" if further_lengths else ""
    return f"{results['seeds']} seed{'s' * (results['seeds'] != 1)}, {lengths_text(lengths)}{also}"


def lengths_text(lengths: Collection[tuple[int, int]]) -> str:
    """Steps and tokens of each."""
    return " or ".join(f"{steps:,} steps of {tokens:,} tokens" for steps, tokens in sorted(lengths))


def machine_text(results: Results) -> str:
    """The machine on which results were made."""
    return ", ".join(f"{name} {value}" for name, value in results["machine"].items())


def command(results: Results) -> str:
    """The command that makes an item's results, with DIR and PATH in place of folders and texts."""
    text = f"loriini reproduce {results['item']} --scale {results['scale']} --seeds {results['seeds']}"
    options = {"--reasons": results.get("reasons"), "--text PATH…": results["text"], "--out DIR": True}
    return " ".join([text, *(option for option, is_given in options.items() if is_given)])


def headline(items: Mapping[str, Results]) -> str:
    """How many findings hold, those that are computed apart from those that are measured."""
    single = [results for name, results in items.items() if not repeats(name, items)]
    parts = {
        "measured": [results for results in single if not is_computed(results)],
        "computed": [results for results in single if is_computed(results)],
    }
    return "; ".join(
        f"of {len(several)} {name} finding{'s' * (len(several) != 1)} "
        f"{counted(results['verdict'] for results in several)}"
        for name, several in parts.items()
        if several
    ).capitalize()


def is_computed(results: Results) -> bool:
    """Whether an item's claims are about sizes, formulas and bytes alone, which no seed changes."""
    return bool(results["claims"]) and all(claim["exact"] for claim in results["claims"])


def repeats(item: str, items: Collection[str]) -> str:
    """The item, among some, that is the same experiment as this one; empty if there is none."""
    return EXPERIMENTS[item].same_as if EXPERIMENTS[item].same_as in items else ""
