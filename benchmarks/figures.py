"""Draw the pictures of docs/lory.md from the mixture of a finished quickstart.

python benchmarks/figures.py FOLDER
"""

import argparse
from pathlib import Path

from loriini.analyze.routes import ROUTES, Routes
from loriini.reporting import plots

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
GREY = "#7d8590"
"""Legible on white and on black, for a picture that has no page around it whose colour it could take."""


def of_quickstart(folder: Path) -> dict[str, str]:
    """The picture of which experts each domain chooses, from the mixture of a finished quickstart."""
    routes = Routes.load(folder / "runs" / "lory" / ROUTES)
    return {"gates_by_domain": plots.shares_by_domain(routes.choice_shares, routes.domains)}


def main() -> None:
    """Draw, and print where the pictures are."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("quickstart", type=Path)
    for name, svg in of_quickstart(parser.parse_args().quickstart).items():
        (PICTURES / f"{name}.svg").write_text(svg.replace("currentColor", GREY))
        print(PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
