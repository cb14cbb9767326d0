"""Draw the pictures of the documentation.

python benchmarks/figures.py QUICKSTART            the folder of a finished quickstart, for docs/lory.md
python benchmarks/figures.py training_well.json    results of training_well.py, for docs/training_well.md
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from loriini.analyze.routes import ROUTES, Routes
from loriini.reporting import plots

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
GREY = "#7d8590"
"""Legible on white and on black, for a picture that has no page around it whose colour it could take."""


def of_quickstart(folder: Path) -> dict[str, str]:
    """The picture of which experts each domain chooses, from the mixture of a finished quickstart."""
    routes = Routes.load(folder / "runs" / "lory" / ROUTES)
    return {"gates_by_domain": plots.shares_by_domain(routes.choice_shares, routes.domains)}


def of_training_well(results: Path) -> dict[str, str]:
    """The picture of what rates and optimizers do to the loss of the variants of `training_well.py`."""
    return {"training_well": rates_of(json.loads(results.read_text())["tried"])}


@plots.picture
def rates_of(tried: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Training loss over the learning rate, a line a variant."""
    figure, axes = plots.one_plot(3.2)
    for name, found in tried.items():
        losses = sorted((float(rate), loss) for rate, loss in found["training_loss"].items() if loss)
        rates, of_rates = zip(*losses, strict=True)
        style = "--" if " adamw " in name else "-"
        axes.plot(rates, of_rates, style, marker="o", markersize=3, label=name.removesuffix(" dense"))
    axes.set_xscale("log")
    every = sorted({float(rate) for found in tried.values() for rate in found["training_loss"]})
    axes.set_xticks(every, [f"{rate:g}" for rate in every])
    axes.minorticks_off()
    axes.set_xlabel("learning rate")
    axes.set_title("Training loss after 500 steps")
    plots.legend(figure, axes)
    return figure


def main() -> None:
    """Draw, and print where the pictures are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path)
    source = parser.parse_args().source
    for name, svg in (of_quickstart(source) if source.is_dir() else of_training_well(source)).items():
        (PICTURES / f"{name}.svg").write_text(svg.replace("currentColor", GREY))
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
