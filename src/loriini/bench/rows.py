"""All comparisons in turn, with rows after every round."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from loriini.bench.memory import memory_rows
from loriini.bench.operations import Machine
from loriini.bench.parts import COMPARISONS, Comparison
from loriini.bench.peaks import measure_peaks
from loriini.bench.sizes import BenchSize, bench_size
from loriini.bench.timing import Attempts, Case, Row, measured, row, turns
from loriini.common.errors import InputError
from loriini.common.hardware import describe_machine, keep_freed_memory
from loriini.common.progress import progress, warn
from loriini.papers.published import published_values

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
    quick: bool = False,
    only: Sequence[str] = (),
    rounds: int | None = None,
    size: BenchSize | None = None,
    attempts: Attempts | None = None,
) -> Iterator[list[Row]]:
    """Measure the parts in `only` (DEFAULT_PARTS without any); yields all rows so far after every round.

    `attempts` says until when, and keeps what failed on a GPU.

    Every row has the columns of docs/speed.md and `part`, its own seconds and the baseline's by round,
    threads, tokens a second, MFU of the measured peak, and the machine.
    """
    size, attempts = size or bench_size(quick), attempts or Attempts()
    if attempts.over:
        warn(f"benchmark of {', '.join(only or DEFAULT_PARTS)}: left out, since the time is over")
        return
    keep_freed_memory()
    size = replace(size, rounds=rounds or size.rounds)
    machine = measure_peaks(quick)
    about = {
        **describe_machine(),
        "date": time.strftime("%Y-%m-%d"),
        "matrix_flops": machine.flops,
        "copy_bandwidth": machine.bandwidth,
    }
    parts = only or DEFAULT_PARTS
    chosen = [part for part in parts if part in COMPARISONS]
    plan = [(part, c) for part in chosen for c in COMPARISONS[part](size) if c.cases]
    finished: list[Row] = []
    with progress("bench", len(plan) * size.rounds + ("memory" in parts)) as advance:
        minutes = planned_minutes([comparison for _, comparison in plan], size, machine)
        advance(0, f"about {minutes:.0f} minutes of training steps")
        for part, comparison in plan:
            rows: list[Row] = []
            for rows in by_round(comparison, size, machine, attempts):
                rows = [{**r, "part": part, "machine": about} for r in rows]
                advance(1, f"{comparison.what} {', '.join(c.name for c in comparison.cases)}")
                yield [*finished, *rows]
            finished += rows
        if "memory" in parts:
            for used in memory_rows(size, attempts):
                finished.append({**used, "part": "memory", "machine": about})
                yield finished
            advance()


def by_round(
    comparison: Comparison, size: BenchSize, machine: Machine, attempts: Attempts
) -> Iterator[list[Row]]:
    """After every round a row for each case that could be measured; none without the baseline.

    A case that fails is not tried again, and its rounds before that count.
    """
    cases = (comparison.baseline, *comparison.cases)
    if attempts.over:
        warn(f"{comparison.what} of {', '.join(map(named, cases))}: left out, since the time is over")
        return
    left = set(range(len(cases))) if comparison.cases else set()
    measured_so_far: list[dict[int, list[float]]] = []
    for i in range(-size.settling, size.rounds):
        found: dict[int, list[float]] = {}
        for place in turns(len(cases), i):
            if 0 in left and place in left:
                case = cases[place]
                seconds = attempts.attempt(named(case), partial(measured, case, size.repeats))
                if seconds is None:
                    left.remove(place)
                else:
                    found[place] = [s / comparison.steps for s in seconds]
        if i < 0 or 0 not in found:
            continue
        measured_so_far.append(found)
        yield list(rows_so_far(comparison, measured_so_far, machine))


def named(case: Case) -> str:
    """A case as warnings name it."""
    segments = f", N = {case.details['segments']}" if "segments" in case.details else ""
    return f"{case.name}, {case.experts} experts{segments}"


def rows_so_far(
    comparison: Comparison, rounds: Sequence[dict[int, list[float]]], machine: Machine
) -> Iterator[Row]:
    """A row for each case, of the rounds in which it was measured.

    `rounds` hold seconds by place; place 0 is the baseline's.
    """
    for place, case in enumerate(comparison.cases, start=1):
        both = [(each[place], each[0]) for each in rounds if place in each]
        of_case, reference = ([s for pair in both for s in pair[i]] for i in (0, 1))
        if both:
            yield one_row(comparison, case, (of_case, reference), machine)


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


def planned_minutes(plan: Sequence[Comparison], size: BenchSize, machine: Machine) -> float:
    """A rough estimate of the time that training steps take, from their FLOPs."""
    flops = sum(
        comparison.steps * comparison.tokens * case.details.get("flops_per_token", 0)
        for comparison in plan
        for case in (comparison.baseline, *comparison.cases)
    )
    times = (size.settling + size.rounds) * size.repeats
    return OVERHEAD * times * flops / (UTILISATION * machine.flops) / 60


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
