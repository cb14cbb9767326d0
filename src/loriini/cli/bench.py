"""The command that measures speed and memory."""

import argparse
from typing import Any

from loriini.cli.output import print_rows
from loriini.cli.parser import Add, output_file


def bench_arguments(add: Add) -> None:
    """Arguments of `loriini bench`."""
    add(
        "--out",
        type=output_file('"ratio"'),
        metavar="FILE",
        help="also write the results to this file, as JSON",
    )
    add("--quick", action="store_true", help="smaller models and fewer rounds")


def bench(arguments: argparse.Namespace) -> None:
    """Measure speed and memory on this machine relative to named baselines."""
    from loriini.bench.measure import COLUMNS, measure
    from loriini.common.atomic import write_json

    rows: list[dict[str, Any]] = []
    for rows in measure(arguments.quick):
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.out, rows)
    digits = {"ratio": 3, "median_s": 4}
    texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row[k] is not None} for row in rows]
    print_rows([{**row, **text} for row, text in zip(rows, texts, strict=True)], COLUMNS, as_json=False)
