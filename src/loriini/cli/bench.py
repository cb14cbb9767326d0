"""The command that measures speed and memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from loriini.cli.arguments import output_file
from loriini.cli.output import print_rows
from loriini.common.options import Option


@dataclass(frozen=True)
class Bench:
    """Measure speed and memory on this machine relative to named baselines."""

    out: Annotated[Path | None, Option("FILE", parse=output_file('"ratio"'))] = None
    """Also write the results to this file, as JSON."""
    quick: bool = False
    """Smaller models and fewer rounds."""

    def run(self) -> None:
        from loriini.bench.measure import COLUMNS, measure
        from loriini.common.atomic import write_json

        rows: list[dict[str, Any]] = []
        for rows in measure(self.quick):
            if self.out:
                self.out.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.out, rows)
        digits = {"ratio": 3, "median_s": 4}
        texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row[k] is not None} for row in rows]
        print_rows([{**row, **text} for row, text in zip(rows, texts, strict=True)], COLUMNS, as_json=False)
