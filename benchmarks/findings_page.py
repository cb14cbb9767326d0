"""Tables and pictures of docs/findings.md, and the README's table, from the results of findings.py.

python benchmarks/findings_page.py [--results FILE]

A table stands between `<!-- table NAME -->` and `<!-- end -->`, and is replaced there.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from findings import RESULTS
from loriini.common.atomic import write_text
from loriini.compare.seeds import geometric, over_seeds
from loriini.compare.variants import difference, with_mean
from loriini.evaluate.intervals import OVERALL, differences_by_domain
from loriini.reporting import plots

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "findings.md", ROOT / "README.md")
PICTURES = ROOT / "docs" / "pictures"
GREY = "#7d8590"
"""Legible on white and on black, for a picture that has no page around it whose colour it could take."""

Results = Mapping[str, Any]
Pairs = tuple[tuple[str, str], ...]
"""Variants, each with the one that it is compared with."""


def beside(baseline: str, *names: str) -> Pairs:
    """These variants compared with one."""
    return tuple((name, baseline) for name in names)


COMPARED: dict[str, Pairs] = {
    "readme": beside("dense", "lory", "mixtral", "lory, copies", "lory, dense warm-up"),
    "designs": beside("dense", "lory", "mixtral", "deepseek-v3", "ec-token", "aoe", "switch", "relu"),
    "starts": beside("dense", "lory", "lory, copies", "lory, dense warm-up"),
    "units": beside("lory", "prefix", "ec-token", "ec-segment"),
    "order": (
        ("lory", "dense"),
        ("lory, random order", "dense, random order"),
        ("dense, random order", "dense"),
        ("lory, random order", "lory"),
    ),
    "routers": beside("mixtral", "frozen", "random", "aoe"),
    "segments": beside("lory", "lory, segments of 64", "lory, segments of 32"),
    "experts": beside("dense", "lory, 4 experts", "lory", "lory, 16 experts"),
    "prompt": beside("lory", "lory, routed by the prompt"),
    "scales": (("lory", "lory, initializer"), ("ec-token", "ec-token, initializer")),
    "optimizers": (
        ("dense, AdamW", "dense"),
        ("lory, AdamW", "lory"),
        ("mixtral, AdamW", "mixtral"),
        ("lory, AdamW", "dense, AdamW"),
        ("mixtral, AdamW", "dense, AdamW"),
    ),
}
"""The rows of each table."""
AGREEING = ("lory", "mixtral", "deepseek-v3", "aoe", "switch", "relu")
"""Variants of the table of agreement."""


class Row(NamedTuple):
    """A variant compared with another, in % of perplexity, with the bounds over seeds and over text."""

    name: str
    baseline: str
    training_loss: float
    perplexity: float
    change: float
    seeds: tuple[float, float]
    text: tuple[float, float]


def compare(results: Results, name: str, baseline: str) -> Row:
    """The row of a variant."""
    scores = [
        {int(seed): {**score, "instance_losses": score["losses"]} for seed, score in of["seeds"].items()}
        for of in (results["variants"][baseline], results["variants"][name])
    ]
    seeds = sorted(scores[0].keys() & scores[1].keys())
    found = difference(*scores, seeds, partial(differences_by_domain, tokens=results["tokens"]))[OVERALL]

    def bounds(over: str) -> tuple[float, float]:
        return 100 * found[over]["low"], 100 * found[over]["high"]

    return Row(
        name,
        baseline,
        over_seeds([score["training_loss"] for score in scores[1].values()]).mean,
        geometric([with_mean(score["perplexity"])[OVERALL] for score in scores[1].values()]).mean,
        100 * found["change"],
        bounds("seeds"),
        bounds("documents"),
    )


def compared(results: Results, pairs: Pairs) -> list[Row]:
    """The rows of a table: of the pairs that are measured."""
    measured = results["variants"].keys()
    return [compare(results, *pair) for pair in pairs if measured >= {*pair}]


def interaction(results: Results) -> str:
    """By how many points similar order changes the gain of Lory over dense, with its interval over seeds."""
    names = ("lory", "dense", "lory, random order", "dense, random order")
    if not results["variants"].keys() >= {*names}:
        return ""
    logs = [
        {seed: log(with_mean(score["perplexity"])[OVERALL]) for seed, score in of["seeds"].items()}
        for of in map(results["variants"].__getitem__, names)
    ]
    found = over_seeds([logs[0][s] - logs[1][s] - logs[2][s] + logs[3][s] for s in logs[0]])
    values = (100 * (exp(x) - 1) for x in (found.mean, found.low, found.high))
    return "\nGain in similar over gain in random order: {}, {} to {} over seeds.\n".format(
        *map(signed, values)
    )


def signed(value: float) -> str:
    """A change in %."""
    return f"{value:+.1f}".replace("-", "−")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def comparison(rows: Sequence[Row]) -> str:
    """The table of compared variants; the baseline has a line of its own in the page's first table."""
    several = len({row.baseline for row in rows}) > 1
    head = ["variant", *["compared with"] * several, "training loss", "perplexity"]
    return table(
        [*head, "change, %", "95 % over seeds", "over text"],
        [
            [
                row.name,
                *[row.baseline] * several,
                f"{row.training_loss:.3f}",
                f"{row.perplexity:.1f}",
                f"**{signed(row.change)}**" if decided(row) else signed(row.change),
                *(" to ".join(map(signed, bounds)) for bounds in (row.seeds, row.text)),
            ]
            for row in rows
        ],
    )


def decided(row: Row) -> bool:
    """Whether both intervals exclude 0 on the same side."""
    bounds = (*row.seeds, *row.text)
    return min(bounds) > 0 or max(bounds) < 0


def rates(results: Results) -> str:
    """The table of training losses by learning rate."""
    every = sorted({float(rate) for tried in results["tried"].values() for rate in tried})
    rows = []
    for name, tried in results["tried"].items():
        by_rate = {float(rate): loss for rate, loss in tried.items()}
        best = min(loss for loss in by_rate.values() if loss is not None)
        cells = ["" if (loss := by_rate.get(rate)) is None else f"{loss:.2f}" for rate in every]
        rows.append(
            [name, *(f"**{c}**" if by_rate.get(r) == best else c for r, c in zip(every, cells, strict=True))]
        )
    return table(["variant", *(f"{rate:g}" for rate in every)], rows)


def start_scales(results: Results) -> str:
    """The table of the RMS of what untrained FFNs add."""
    scales = ("initializer", "dense")
    rows = [[name, *(f"{of[s]:.3f}" for s in scales)] for name, of in results["branch_rms"].items()]
    return table(["design", *(f"`{scale}`" for scale in scales)], rows)


def agreements(results: Results) -> str:
    """The table of how far experts and domains agree, by layer."""
    rows = []
    for name in (name for name in AGREEING if name in results["variants"]):
        by_seed = [score["agreement"] for score in results["variants"][name]["seeds"].values()]
        layers = [over_seeds(of_layer) for of_layer in zip(*by_seed, strict=True)]
        rows.append(
            [name, *(f"{x.mean:.2f} ({x.low:.2f} to {x.high:.2f})".replace("-", "−") for x in layers)]
        )
    return table(["design", *(f"layer {i}" for i in range(1, len(rows[0]) if rows else 1))], rows)


@plots.picture
def forest(rows: Sequence[Row]) -> Figure:
    """Changes with their intervals: over seeds a line, over text a wider faint one."""
    figure, axes = plots.one_plot(0.6 + 0.3 * len(rows))
    several = len({row.baseline for row in rows}) > 1
    for y, row in enumerate(reversed(rows)):
        axes.plot(row.text, (y, y), color=plots.LESS, linewidth=6, alpha=0.25, solid_capstyle="butt")
        axes.plot(row.seeds, (y, y), color=plots.LESS, linewidth=1.5)
        axes.plot(row.change, y, "o", color=plots.LESS, markersize=5)
    axes.axvline(0, color=plots.DENSE_COLOR, linewidth=1)
    names = [f"{row.name} / {row.baseline}" if several else row.name for row in reversed(rows)]
    axes.set_yticks(range(len(rows)), names)
    axes.set_title("Change of perplexity, %" if several else f"Perplexity relative to {rows[0].baseline}, %")
    return figure


@plots.picture
def loss_by_rate(results: Results) -> Figure:
    """Training loss over the learning rate, a line a variant."""
    figure, axes = plots.one_plot(3.2)
    for name, tried in results["tried"].items():
        points = sorted((float(rate), loss) for rate, loss in tried.items() if loss)
        axes.plot(
            *zip(*points, strict=True), "--" if "AdamW" in name else "-", marker="o", markersize=3, label=name
        )
    axes.set_xscale("log")
    every = sorted({float(rate) for tried in results["tried"].values() for rate in tried})
    axes.set_xticks(every, [f"{rate:g}" for rate in every])
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
    axes.set_title(f"Training loss after {results['rate_steps']} steps")
    plots.legend(figure, axes)
    return figure


TABLES: dict[str, Callable[[Results], str]] = {
    **{
        name: lambda results, pairs=pairs: comparison(compared(results, pairs))
        for name, pairs in COMPARED.items()
    },
    "order": lambda results: comparison(compared(results, COMPARED["order"])) + interaction(results),
    "rates": rates,
    "start-scales": start_scales,
    "agreement": agreements,
}


def with_tables(page: str, results: Results) -> str:
    """A page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n\n{TABLES[match[1]](results)}\n<!-- end -->"

    return re.sub(r"<!-- table ([a-z-]+) -->\n.*?<!-- end -->", made, page, flags=re.DOTALL)


def pictures(page: str, results: Results) -> Iterator[tuple[str, str]]:
    """The file and the SVG of each picture that a page shows."""
    for file, name in re.findall(r"pictures/(findings_([a-z-]+)\.svg)", page):
        drawn = loss_by_rate(results) if name == "rates" else forest(compared(results, COMPARED[name]))
        yield file, drawn.replace("currentColor", GREY)


def main() -> None:
    """Write tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = json.loads(parser.parse_args().results.read_text("utf-8"))
    for path in PAGES:
        page = with_tables(path.read_text("utf-8"), results)
        write_text(path, page)
        for file, svg in pictures(page, results):
            write_text(PICTURES / file, svg)


if __name__ == "__main__":
    main()
