"""Everything to measure on one GPU by one command; data is made on the spot.

PYTHONPATH=src python benchmarks/gpu.py --results gpu.json    # everything, or what begins within --minutes
PYTHONPATH=src python benchmarks/gpu.py --tiny                # the same at tiny sizes, in a minute on a CPU

In this order: fast paths on this device beside their naive twins, compiled steps beside eager ones, greedy
decoding with a cache and without one; the merge's kernel and products beside copies; training steps of the
smallest micro-batch; profiles; the other parts of the benchmark. The results file is rewritten after every
result. What does not begin in time or does not fit into the memory is left out with a warning; `--layers`
takes fewer layers, of which more fits. The exit status is 1 where a result was wrong or a measurement failed.
Needs torch and transformers alone.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import standins  # noqa: F401  first: loriini imports what it replaces
from gpu_checks import checks
from gpu_kernels import kernel_rows
from loriini.bench import Attempts, measure
from loriini.bench.fitting import that_fits
from loriini.bench.models import bench_run, build_steps
from loriini.bench.rows import DEFAULT_PARTS, PARTS
from loriini.bench.sizes import QUICK, BenchSize, bench_size
from loriini.common.hardware import pick_device
from loriini.common.progress import warn
from loriini.train.config import TrainConfig
from measuring import write_results

SHOWN = 30
"""Operations of a profile."""
Rows = Iterator[list[dict[str, Any]]]
"""All rows of a result so far, after each."""


def profiles(size: BenchSize, attempts: Attempts) -> Iterator[dict[str, Any]]:
    """The operations that take the time of a training step, dense and Lory."""
    for design, experts in (("dense", 1), *(("lory", n) for n in size.experts)):
        run = that_fits(bench_run(size, design, experts))
        if run is None:
            continue
        profiled = attempts.attempt(f"profile of {design}, {experts} experts", partial(profile_of, run))
        if profiled:
            again = run.model.recompute_merge
            yield {"design": design, "experts": experts, "recompute_merge": again, **profiled}


def profile_of(run: TrainConfig) -> dict[str, Any]:
    """The longest operations of a training step: kernels on a GPU, operators on a CPU."""
    work = build_steps(run, 1)
    on_gpu = pick_device().type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        work()
    attribute = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    # an operator's device time is that of its kernels, which have events of their own
    device = DeviceType.CUDA if on_gpu else DeviceType.CPU
    events = [op for op in profiler.key_averages() if op.device_type == device and not op.is_user_annotation]
    operations = sorted(events, key=lambda op: -getattr(op, attribute))
    total = sum(getattr(op, attribute) for op in operations)
    shown = [
        {"operation": op.key, "calls": op.count, "ms": round(getattr(op, attribute) / 1e3, 3)}
        for op in operations[:SHOWN]
    ]
    return {"total_ms": round(total / 1e3, 3), "operations": shown}


def so_far(name: str, rows: Iterator[dict[str, Any]], attempts: Attempts) -> Rows:
    """All rows that begin in time, after each."""
    found: list[dict[str, Any]] = []
    while not attempts.over:
        row = next(rows, None)
        if row is None:
            return
        found.append(row)
        print(shown(name, row))
        yield found
    warn(f"{name}: what has not begun is left out, since the time is over")


def shown(name: str, row: dict[str, Any]) -> str:
    """A result as lines."""
    if name == "correctness":
        return f"{'ok  ' if row['passed'] else 'FAIL'} {row['check']} {row['precision']}"
    if name == "profile":
        lines = [
            f"  {op['ms']:9.2f} ms  {op['calls']:5d}  {op['operation']}" for op in row["operations"][:10]
        ]
        return "\n".join([f"{row['design']} {row['experts']}: {row['total_ms']:.1f} ms", *lines])
    return "  ".join(f"{key} {value}" for key, value in row.items())


def benchmark(parts: list[str], size: BenchSize, rounds: int | None, attempts: Attempts) -> Rows:
    """Rows of the benchmark's parts."""
    rows: list[dict[str, Any]] = []
    for rows in measure(size.shape == QUICK.shape, parts, rounds, size, attempts):
        yield rows
    for row in rows:
        print(row["what"], row["design"], row["experts"], row["baseline"], row["ratio"], row.get("bound"))


def plan(
    size: BenchSize, part: str | None, rounds: int | None, attempts: Attempts
) -> Iterator[tuple[str, Rows]]:
    """What is measured in turn: its key in the results, and its rows."""
    first = replace(size, micro_batch_sizes=size.micro_batch_sizes[:1])
    others = replace(size, micro_batch_sizes=size.micro_batch_sizes[1:])
    yield "correctness", so_far("correctness", checks(size), attempts)
    yield "kernels", so_far("kernels", kernel_rows(size, attempts), attempts)
    if part is None:
        yield "bench", benchmark(["train"], first, rounds, attempts)
    yield "profile", so_far("profile", profiles(size, attempts), attempts)
    if part:
        yield "bench", benchmark([part], size, rounds, attempts)
        return
    if others.micro_batch_sizes:
        yield "bench", benchmark(["train"], others, rounds, attempts)
    yield "bench", benchmark([name for name in DEFAULT_PARTS if name != "train"], size, rounds, attempts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a test on a CPU")
    names = ("correctness", "kernels", "bench", "profile")
    parser.add_argument("--only", choices=names, help="one of these alone")
    parser.add_argument("--part", choices=PARTS, help="one part of the benchmark alone")
    parser.add_argument("--rounds", type=int, help="how often each model of the benchmark is built")
    parser.add_argument("--minutes", type=float, default=math.inf, help="nothing begins after so many")
    parser.add_argument("--layers", type=int, help="layers of the models, instead of those of the size")
    parser.add_argument("--results", type=Path, default=Path("gpu.json"))
    arguments = parser.parse_args()
    attempts = Attempts(time.monotonic() + 60 * arguments.minutes)
    size = QUICK if arguments.tiny else bench_size()
    if arguments.layers:
        size = replace(size, shape=replace(size.shape, num_hidden_layers=arguments.layers))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name, measured in plan(size, arguments.part, arguments.rounds, attempts):
        before = results[name]
        for rows in measured if arguments.only in (None, name) else ():
            results[name] = [*before, *rows]
            write_results(arguments.results, experiment="gpu", **results, errors=attempts.errors)
    wrong = [check["check"] for check in results["correctness"] if not check["passed"]]
    if wrong or attempts.errors:
        print(*(f"wrong: {name}" for name in wrong), *attempts.errors, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
