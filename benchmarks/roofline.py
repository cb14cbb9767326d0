"""The bound of a training step: every operation of our code at the time that its bytes or FLOPs take.

python benchmarks/roofline.py --results benchmarks/results/roofline.json             # an H200, 0.3B shapes
python benchmarks/roofline.py --cpu --results benchmarks/results/roofline_cpu.json   # this machine, measured

Nothing is computed (fake tensors), so it runs anywhere. `ratio` compares Lory's step with a dense one that is
at its own bound; `ratio_at_mfu` with a dense one at `--mfu`, to which Lory's extra work is added.
"""

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bound_figures import bound_cells
from loriini.bench.models import bench_run, run_config
from loriini.bench.operations import Machine
from loriini.bench.peaks import measure_peaks
from loriini.bench.sizes import CPU, CUDA, QUICK, BenchSize
from loriini.bench.walk import seconds_by_group, walk_step
from loriini.cli.output import format_table
from measuring import write_results


def walked(
    size: BenchSize, design: str, experts: int, recompute: bool, machine: Machine, plain: bool
) -> dict[str, Any]:
    """The bound of one model's step, in milliseconds by group."""
    run = bench_run(size, design, experts, recompute_merge=recompute)
    (micro_batch_size,), on_gpu = size.micro_batch_sizes, size.compile
    step = walk_step(
        run_config(run),
        micro_batch_size,
        size.length,
        size.batch_size // micro_batch_size,
        torch.bfloat16,
        compiled=on_gpu,
        casts_once=not plain,
        one_pass=on_gpu and not plain,
    )
    by_group = seconds_by_group(step, machine)
    return {
        "design": design,
        "experts": experts,
        "recompute_merge": recompute,
        "segments": micro_batch_size * size.length // size.segment_length,
        "tokens_per_step": size.batch_size * size.length,
        "flops_per_step": size.batch_size * size.length * run_config(run).flops_per_token(size.length),
        "bytes": sum(times * operation.moved for operation, times in step),
        "milliseconds": {group: round(1e3 * seconds, 3) for group, seconds in by_group.items()},
        "total_ms": round(1e3 * sum(by_group.values()), 3),
    }


def walk_all(size: BenchSize, machine: Machine, mfu: float, plain: bool) -> list[dict[str, Any]]:
    """Dense and Lory at each micro-batch and number of experts, merged weights kept or merged again."""
    rows = []
    for micro_batch_size in size.micro_batch_sizes:
        own = replace(size, micro_batch_sizes=(micro_batch_size,))
        dense = walked(own, "dense", 1, False, machine, plain)
        at_mfu = 1e3 * dense["flops_per_step"] / (mfu * machine.flops)
        rows.append({**dense, "ratio": 1.0, "ratio_at_mfu": 1.0})
        for recompute in (False, True):
            for experts in own.experts:
                lory = walked(own, "lory", experts, recompute, machine, plain)
                extra = lory["total_ms"] - dense["total_ms"]
                ratios = {
                    "ratio": round(dense["total_ms"] / lory["total_ms"], 4),
                    "ratio_at_mfu": round(at_mfu / (at_mfu + extra), 4),
                }
                rows.append({**lory, **ratios})
    return rows


def positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bandwidth", type=positive, default=4.3e12, help="bytes/s, read plus written")
    parser.add_argument("--flops", type=positive, default=790e12, help="FLOPs/s of bfloat16 products")
    parser.add_argument("--mfu", type=positive, default=0.4, help="of the dense model, for ratio_at_mfu")
    parser.add_argument(
        "--cpu", action="store_true", help="the CPU sizes, with this machine's measured peaks"
    )
    parser.add_argument(
        "--plain", action="store_true", help="experts cast in every micro-batch, no kernel for the merge"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, for a test")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    size = QUICK if arguments.tiny else CPU if arguments.cpu else CUDA
    measured = measure_peaks(arguments.tiny) if arguments.cpu else None
    machine = measured or Machine(arguments.bandwidth, arguments.flops)
    rows = walk_all(size, machine, arguments.mfu, arguments.plain)
    print(format_table(*bound_cells(rows), align_right=True))
    if arguments.results:
        about = {
            "bandwidth": machine.bandwidth,
            "flops": machine.flops,
            "mfu": arguments.mfu,
            "plain": arguments.plain,
        }
        write_results(arguments.results, experiment="roofline", assumed=about, rows=rows)


if __name__ == "__main__":
    main()
