"""Speed and memory of this machine beside named baselines: the measure behind every figure of the docs."""

from loriini.bench.rows import COLUMNS, PARTS, measure, rows_of_other_parts

__all__ = ["COLUMNS", "PARTS", "measure", "rows_of_other_parts"]
