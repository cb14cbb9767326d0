"""Draw the pictures of the docs, and fill its pages from the JSON in benchmarks/results/.

Some pictures are of a finished quickstart.

python benchmarks/figures.py [--quickstart loriini-quickstart]
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import speed_figures
from experiment_tables import LONG_RUN, batching_table, by_seed, defaults_table, long_run_text
from leaderboard_page import leaderboard_page
from loriini.analyze.routes import ROUTES, Routes
from loriini.compare.seeds import geometric
from loriini.reporting import plots
from loriini.reporting.plots import DENSE_COLOR, GREY, MIXTURE_COLOR, picture
from loriini.train.records.metrics import METRICS, read_metrics
from pages import Part, fill, markdown

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
PICTURES = DOCS / "pictures"


def by_name(experiment: dict[str, Any]) -> dict[str, np.ndarray]:
    """Mean perplexity over domains of each run, one value a seed."""
    rows = experiment["results"]
    found = {row["name"]: np.array(list(by_seed(rows, row["name"]).values())) for row in rows}
    return {name: seeds for name, seeds in found.items() if len(seeds)}


@picture
def cells(values: dict[str, np.ndarray]) -> Figure:
    """Every run's seeds as dots on a line of perplexity, with geometric mean and 95 % interval of several."""
    figure = Figure(figsize=(6.4, 0.5 + 0.42 * len(values)), layout="constrained")
    axes = figure.subplots()
    for place, (name, seeds) in enumerate(reversed(values.items())):
        color = DENSE_COLOR if name.startswith("dense") else MIXTURE_COLOR
        found = geometric(seeds.tolist())
        ends = None if np.isnan(found.high) else [[found.mean - found.low], [found.high - found.mean]]
        axes.errorbar(found.mean, place, xerr=ends, color=color, marker="|", ms=14, capsize=3)
        axes.plot(seeds, np.full(len(seeds), place), "o", color=color, ms=4, alpha=0.5)
        axes.annotate(
            f"{found.mean:.1f}", (found.mean, place), (0, 9), textcoords="offset points", ha="center"
        )
    axes.set_yticks(range(len(values)), list(reversed(values)))
    axes.set_ylim(-0.6, len(values) - 0.2)
    axes.set_xlabel("held-out perplexity, mean over domains")
    axes.grid(axis="x", alpha=0.2)
    return figure


LONG_RUN_STYLES = dict(zip(LONG_RUN, ((DENSE_COLOR, "-"), (MIXTURE_COLOR, "-"), ("C0", ":")), strict=True))


@picture
def curves(experiment: dict[str, Any]) -> Figure:
    """Training loss, held-out perplexity, and the mixture's relative difference by domain, over steps.

    Thin lines are seeds, thick ones their means; bands of differences go from the lowest seed to the highest.
    """
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    loss, perplexity, difference = figure.subplots(1, 3)
    rows = defaultdict(list)
    for row in experiment["results"]:
        rows[row["name"]].append(row)
    steps = [measured["step"] for measured in experiment["results"][0]["evaluation"]]
    for name, seeds in rows.items():
        color, style = LONG_RUN_STYLES[name]
        losses = np.array([row["losses"] for row in seeds])
        windows = experiment["window"] * np.arange(1, losses.shape[1] + 1)
        means = np.array([[measured["mean_perplexity"] for measured in row["evaluation"]] for row in seeds])
        for axes, x, y in ((loss, windows, losses), (perplexity, steps, means)):
            axes.plot(x, y.T, color=color, lw=0.6, alpha=0.4)
            axes.plot(x, y.mean(0), color=color, linestyle=style, label=name)
    for domain in sorted(rows["dense"][0]["evaluation"][0]["perplexity"]):
        dense, lory = (
            np.array([[m["perplexity"][domain] for m in row["evaluation"]] for row in rows[name]])
            for name in ("dense", "lory")
        )
        relative = 100 * (lory / dense - 1)
        (line,) = difference.plot(steps, relative.mean(0), lw=1.4, label=domain)
        difference.fill_between(steps, relative.min(0), relative.max(0), color=line.get_color(), alpha=0.12)
    difference.axhline(0, color=GREY, lw=1)
    perplexity.set_yscale("log")
    perplexity.minorticks_off()
    perplexity.set_yticks(ticks := [50, 100, 200], map(str, ticks))
    loss.set_title("training loss")
    perplexity.set_title("held-out perplexity")
    difference.set_title("lory relative to dense, %")
    for axes in (loss, perplexity, difference):
        axes.set_xlabel("step")
        axes.grid(alpha=0.2)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3)
    return figure


FIGURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "similar_batching": lambda experiment: cells(by_name(experiment)),
    "choose_defaults": lambda experiment: cells(by_name(experiment)),
    "long_run": curves,
}


def order_text(experiment: dict[str, Any]) -> str:
    """Similarity of an instance's documents by order."""
    rows = [
        [
            f"`{row['order']}`",
            f"{row['in_instance_cosine']:.3f}",
            f"{row['adjacent_cosine']:.3f}",
            "" if row["restarts"] is None else f"{100 * row['restarts']:.1f} %",
        ]
        for row in experiment["rows"]
    ]
    return (
        f"{experiment['documents']:,} texts of {experiment['mean_tokens']:.0f} tokens on average, without "
        f"near-duplicates, in instances of {experiment['length']:,} tokens; {experiment['voters']} documents "
        "vote (`benchmarks/order_quality.py`).\n\n"
        + markdown(["order", "mean cosine in an instance", "of adjacent documents", "restarts"], rows)
    )


WHOLE_PAGES = {"leaderboard": leaderboard_page}
PAGES = {
    "speed.md": speed_figures.PARTS,
    "data.md": {"orders": Part("order_quality", order_text)},
    "experiments.md": {
        "batching": Part("similar_batching", batching_table),
        "defaults": Part("choose_defaults", defaults_table),
        "long run": Part("long_run", long_run_text),
    },
}


def of_pages(docs: Path = DOCS) -> dict[str, str]:
    """Fill the parts of pages that results are there for; their pictures."""
    sources = {part.source for parts in PAGES.values() for part in parts.values()}
    paths = {name: RESULTS / f"{name}.json" for name in sources}
    results = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    filled = [fill(docs / page, parts, results) for page, parts in PAGES.items()]
    return {name: svg for pictures in filled for name, svg in pictures.items()}


def of_quickstart(folder: Path) -> dict[str, str]:
    """The pictures that explain Lory, from the mixture of a finished quickstart."""
    metrics = {name: read_metrics(folder / "runs" / name / METRICS) for name in ("dense", "lory")}
    routes = Routes.load(folder / "runs" / "lory" / ROUTES)
    return {
        "loss_difference": plots.loss_difference(metrics["dense"], metrics["lory"]),
        "utilisation": plots.utilisation_curves(metrics["lory"]),
        "gates_by_domain": plots.shares_by_domain(routes.choice_shares, routes.domains),
    }


def main() -> None:
    """Draw one picture for each result that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quickstart", type=Path)
    quickstart = parser.parse_args().quickstart
    results = {name: RESULTS / f"{name}.json" for name in FIGURES}
    pictures = {
        name: FIGURES[name](json.loads(path.read_text())) for name, path in results.items() if path.exists()
    }
    pictures |= of_pages()
    pictures |= of_quickstart(quickstart) if quickstart else {}
    for name, page in WHOLE_PAGES.items():
        (DOCS / f"{name}.md").write_text(page(RESULTS / f"{name}.json"), encoding="utf-8")
        print(DOCS / f"{name}.md")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures.items():
        (PICTURES / f"{name}.svg").write_text(svg.replace("currentColor", GREY))
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
