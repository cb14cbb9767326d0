"""Draw the pictures of docs/lory.md from the mixture of a finished quickstart.

python benchmarks/figures.py FOLDER
"""

import argparse
from pathlib import Path

from loriini.analyze.routes import ROUTES, Routes
from loriini.reporting import plots
from loriini.reporting.plots import GREY
from loriini.train.records.metrics import METRICS, read_metrics

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def of_quickstart(folder: Path) -> dict[str, str]:
    """The pictures by name."""
    metrics = {name: read_metrics(folder / "runs" / name / METRICS) for name in ("dense", "lory")}
    routes = Routes.load(folder / "runs" / "lory" / ROUTES)
    return {
        "loss_difference": plots.loss_difference(metrics["dense"], metrics["lory"]),
        "utilisation": plots.utilisation_curves(metrics["lory"]),
        "gates_by_domain": plots.shares_by_domain(routes.choice_shares, routes.domains),
    }


def main() -> None:
    """Draw, and print where the pictures are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("quickstart", type=Path)
    for name, svg in of_quickstart(parser.parse_args().quickstart).items():
        (PICTURES / f"{name}.svg").write_text(svg.replace("currentColor", GREY))
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
