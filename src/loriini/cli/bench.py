"""The command that measures speed and memory."""

import argparse
from typing import Any

from loriini.cli.output import print_rows
from loriini.cli.parser import Add, output_file
from loriini.common.errors import InputError


def bench_arguments(add: Add) -> None:
    """Arguments of `loriini bench`."""
    add(
        "--out",
        type=output_file('"ratio"'),
        metavar="FILE",
        help="also write the results to this file, as JSON",
    )
    add("--quick", action="store_true", help="smaller models and fewer rounds")
    only = "this part alone; --out keeps the rows of other parts (default: all but sweep and recompute)"
    parts = ("train", "recompute", "sweep", "sparse", "aoe", "ffn", "decode", "memory")
    add("--only", choices=parts, help=only)
    add(
        "--rounds",
        type=int,
        metavar="N",
        help="how often each case is built and measured (8, on a GPU or with --quick 2)",
    )


def bench(arguments: argparse.Namespace) -> None:
    """Measure speed and memory on this machine relative to named baselines."""
    from loriini.bench import COLUMNS, Attempts, measure, rows_of_other_parts
    from loriini.common.atomic import write_json

    out, only, rounds = arguments.out, arguments.only, arguments.rounds
    if rounds is not None and rounds < 1:
        raise InputError(f"--rounds {rounds}: give at least 1")
    kept = rows_of_other_parts(out, only) if out and only else []
    rows: list[dict[str, Any]] = []
    attempts = Attempts()
    for rows in measure(arguments.quick, [only] if only else [], rounds, attempts=attempts):
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, [*kept, *rows])
    digits = {"ratio": 3, "bound": 3, "published": 3, "mfu": 3, "median_s": 4}
    texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row.get(k) is not None} for row in rows]
    shown = [{**dict.fromkeys(COLUMNS), **row, **text} for row, text in zip(rows, texts, strict=True)]
    print_rows(shown, COLUMNS, as_json=False)
    if attempts.errors:
        raise SystemExit(1)
