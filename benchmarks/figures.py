"""Draw the picture of docs/lory.md: which experts each domain chooses, from a finished quickstart.

python benchmarks/figures.py QUICKSTART
"""

import argparse
from pathlib import Path

from findings_page import GREY, PICTURES
from loriini.analyze.routes import ROUTES, Routes
from loriini.reporting import plots


def main() -> None:
    """Draw, and print where the picture is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("quickstart", type=Path, help="the folder of a finished quickstart")
    folder = parser.parse_args().quickstart
    routes = Routes.load(folder / "runs" / "lory" / ROUTES)
    svg = plots.shares_by_domain(routes.choice_shares, routes.domains)
    (PICTURES / "gates_by_domain.svg").write_text(svg.replace("currentColor", GREY))
    print(PICTURES / "gates_by_domain.svg")


if __name__ == "__main__":
    main()
