"""Draw the pictures of the docs, and fill its pages from the JSON in benchmarks/results/.

Some pictures are of a finished quickstart.

python benchmarks/figures.py [--quickstart loriini-quickstart]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import speed_figures
from loriini.analyze.routes import ROUTES, Routes
from loriini.reporting import plots
from loriini.reporting.plots import GREY
from loriini.train.records.metrics import METRICS, read_metrics
from pages import Part, fill, markdown

HERE = Path(__file__).parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
PICTURES = DOCS / "pictures"


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


PAGES = {
    "speed.md": speed_figures.PARTS,
    "data.md": {"orders": Part("order_quality", order_text)},
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
    pictures = of_pages() | (of_quickstart(quickstart) if quickstart else {})
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures.items():
        (PICTURES / f"{name}.svg").write_text(svg.replace("currentColor", GREY))
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
