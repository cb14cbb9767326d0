"""Speed and memory on this machine relative to named baselines, as reported in docs/speed.md."""

from loriini.bench.rows import COLUMNS, measure, rows_of_other_parts
from loriini.bench.timing import Attempts

__all__ = ["COLUMNS", "Attempts", "measure", "rows_of_other_parts"]
