"""Draw the pictures of docs/experiments.md from the JSON in benchmarks/results/.

python benchmarks/figures.py
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loriini.analyze.plots import DENSE, MIXTURE, picture

HERE = Path(__file__).parent
RESULTS, PICTURES = HERE / "results", HERE.parent / "docs" / "pictures"
GREY = "#7d8590"  # legible on white and on black, for an image has no page around it
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided 95 %, by number of seeds


def by_name(experiment: dict[str, Any]) -> dict[str, np.ndarray]:
    """Mean perplexity over domains of each run, one value a seed."""
    values = defaultdict(list)
    for row in experiment["results"]:
        values[row["name"]].append(row["mean_perplexity"])
    return {name: np.array(seeds) for name, seeds in values.items()}


def half_interval(seeds: np.ndarray) -> float:
    """Half of the 95 % confidence interval of the mean; 0 for one seed."""
    if len(seeds) < 2:
        return 0.0
    return float(T_95[len(seeds)] * seeds.std(ddof=1) / np.sqrt(len(seeds)))


@picture
def cells(values: dict[str, np.ndarray]) -> Figure:
    """Every run's seeds as dots on a line of perplexity, with mean and 95 % interval."""
    figure = Figure(figsize=(6.4, 0.5 + 0.42 * len(values)), layout="constrained")
    axes = figure.subplots()
    for place, (name, seeds) in enumerate(reversed(values.items())):
        color = DENSE if name.startswith("dense") else MIXTURE
        axes.errorbar(
            seeds.mean(), place, xerr=half_interval(seeds), color=color, marker="|", ms=14, capsize=3
        )
        axes.plot(seeds, np.full(len(seeds), place), "o", color=color, ms=4, alpha=0.5)
        axes.annotate(
            f"{seeds.mean():.1f}", (seeds.mean(), place), (0, 9), textcoords="offset points", ha="center"
        )
    axes.set_yticks(range(len(values)), list(reversed(values)))
    axes.set_ylim(-0.6, len(values) - 0.2)
    axes.set_xlabel("held-out perplexity, mean over domains")
    axes.grid(axis="x", alpha=0.2)
    return figure


def main() -> None:
    """Draw one picture for each result that is there."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in ("similar_batching", "choose_defaults"):
        path = RESULTS / f"{name}.json"
        if path.exists():
            svg = cells(by_name(json.loads(path.read_text()))).replace("currentColor", GREY)
            (PICTURES / f"{name}.svg").write_text(svg)
            print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
