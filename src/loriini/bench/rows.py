"""All comparisons in turn, with rows after every round."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from loriini.bench.memory import memory_rows
from loriini.bench.operations import Machine
from loriini.bench.parts import COMPARISONS, Comparison
from loriini.bench.peaks import measure_peaks
from loriini.bench.sizes import BenchSize, bench_size
from loriini.bench.timing import Case, Row, in_rounds, row, that_fit
from loriini.errors import InputError
from loriini.hardware import describe_machine, keep_freed_memory
from loriini.progress import progress
from loriini.published import published_values

PARTS = (*COMPARISONS, "memory")
COLUMNS = (
    "what",
    "design",
    "experts",
    "segments",
    "ratio",
    "bound",
    "published",
    "mfu",
    "baseline",
    "dtype",
    "median_s",
    "runs",
    "tokens_per_step",
)
"""The columns of a row that are printed."""
PUBLISHED_SEGMENT = 256
"""The tokens of a segment in Lory's measurements (section 4.1)."""
DEFAULT_PARTS = tuple(part for part in PARTS if part not in ("sweep", "recompute"))
UTILISATION = 0.6
"""Share of the matrix peak that is assumed when the duration of the benchmark is estimated."""
OVERHEAD = 1.5
"""Time of building and warming up, relative to what is measured."""


def measure(
    quick: bool = False, only: Sequence[str] = (), rounds: int | None = None, size: BenchSize | None = None
) -> Iterator[list[Row]]:
    """Measure the parts in `only` (DEFAULT_PARTS without any); yields all rows so far after every round.

    Every row has the columns of docs/speed.md and `part`, its own seconds and the baseline's by round,
    threads, tokens a second, MFU of the measured peak, and the machine.
    """
    keep_freed_memory()
    size = size or bench_size(quick)
    machine = measure_peaks(quick)
    about = {
        **describe_machine(),
        "date": time.strftime("%Y-%m-%d"),
        "matrix_flops": machine.flops,
        "copy_bandwidth": machine.bandwidth,
    }
    parts = only or DEFAULT_PARTS
    plan = [(part, c) for part in parts if part in COMPARISONS for c in COMPARISONS[part](size)]
    rounds = rounds or size.rounds
    finished: list[Row] = []
    with progress("bench", len(plan) * rounds + ("memory" in parts)) as advance:
        minutes = planned_minutes([comparison for _, comparison in plan], rounds, machine)
        advance(0, f"about {minutes:.0f} minutes of training steps")
        for part, comparison in plan:
            rows: list[Row] = []
            for rows in by_round(comparison, rounds, machine):
                rows = [{**r, "part": part, "machine": about} for r in rows]
                advance(1, f"{comparison.what} {', '.join(c.name for c in comparison.cases)}")
                yield [*finished, *rows]
            finished += rows
        if "memory" in parts:
            for measured in memory_rows(size):
                finished.append({**measured, "part": "memory", "machine": about})
                yield finished
            advance()


def by_round(comparison: Comparison, rounds: int, machine: Machine) -> Iterator[list[Row]]:
    """A row for each case that memory holds, after every round; none without the baseline."""
    fitting = that_fit([comparison.baseline, *comparison.cases])
    cases = [case for case in comparison.cases if case in fitting]
    if comparison.baseline not in fitting or not cases:
        return
    measured: list[list[float]] = []
    for seconds in in_rounds(fitting, rounds, warmup=0):  # `that_fit` was one
        measured.append([s / comparison.steps for s in seconds])
        reference, *others = zip(*measured, strict=True)
        yield [
            one_row(comparison, case, (of_case, reference), machine)
            for case, of_case in zip(cases, others, strict=True)
        ]


def one_row(
    comparison: Comparison,
    case: Case,
    seconds: tuple[Sequence[float], Sequence[float]],
    machine: Machine,
) -> Row:
    """A case's row, with the bound and the published ratio where they are known."""
    values = row(comparison.what, case, comparison.baseline, seconds, comparison.tokens)
    if "flops_per_token" in case.details:
        values["mfu"] = round(
            values["tokens_per_second"] * case.details["flops_per_token"] / machine.flops, 4
        )
    if "flops_per_token" in comparison.baseline.details:
        rate = comparison.tokens / median(seconds[1])
        flops = comparison.baseline.details["flops_per_token"]
        values["baseline_mfu"] = round(rate * flops / machine.flops, 4)
    if comparison.what == "train_step" and case.name == "lory":
        of_paper = values.get("segment_length") == PUBLISHED_SEGMENT
        values["published"] = published_ratio(case.experts) if of_paper else None
    if case.least and comparison.baseline.least:
        extra = case.least(machine) - comparison.baseline.least(machine)
        values["bound"] = round(bound(seconds[1], extra), 4)
    return values


def bound(baseline: Sequence[float], extra: float) -> float:
    """The highest ratio that traffic and arithmetic admit: the baseline's measured time, and extra work.

    The extra work runs at the measured copy bandwidth and matrix peak.
    """
    return median(baseline) / (median(baseline) + max(0.0, extra))


def published_ratio(experts: int) -> float | None:
    """Lory's throughput relative to dense in the paper (table 3); None for other numbers of experts."""
    rates: dict[str, Any] = {value.row: value.value for value in published_values("lory-table3")}
    rate = rates.get(f"0.3B/{experts}E")
    return round(rate / rates["0.3B"], 3) if rate else None


def planned_minutes(plan: Sequence[Comparison], rounds: int, machine: Machine) -> float:
    """A rough estimate of the time that training steps take, from their FLOPs."""
    flops = sum(
        comparison.steps * comparison.tokens * case.details.get("flops_per_token", 0)
        for comparison in plan
        for case in (comparison.baseline, *comparison.cases)
    )
    return OVERHEAD * (rounds + 1) * flops / (UTILISATION * machine.flops) / 60


def rows_of_other_parts(path: Path, part: str) -> list[Row]:
    """The rows of a results file that `part` does not measure; none where there is no file.

    Raises InputError for a file that is not a benchmark's.
    """
    if not path.exists():
        return []
    try:
        return [row for row in json.loads(path.read_text()) if row["part"] != part]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: not a benchmark's results; name another file") from error
