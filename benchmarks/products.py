"""The products of an FFN's matrix: by each segment's own weights, as in Lory, and by one weight, as in dense.

python benchmarks/products.py --results benchmarks/results/products.json

All operations take turns. `added_ms` is how long the extra bytes of a segment's own weights, read or written
once, take at the measured copy bandwidth.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from loriini.bench.models import weight_dtype
from loriini.bench.peaks import measure_peaks
from loriini.bench.sizes import BenchSize, bench_size
from loriini.bench.timing import timed
from loriini.hardware import keep_freed_memory, pick_device
from loriini.model.affine import BatchedLinear
from measuring import write_results

ROUNDS = 15


def operations(size: BenchSize) -> dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]:
    """A product for all segments with their own weights, and the same with one weight, by name."""
    d, f = size.shape.hidden_size, size.shape.intermediate_size
    slots = size.segment_length
    units = size.micro_batch_sizes[0] * size.length // slots

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=pick_device()).to(weight_dtype())

    x_NSD, dy_NSF = random(units, slots, d), random(units, slots, f)
    weight_NFD, weight_FD = random(units, f, d), random(f, d)
    x_MD, dy_MF = x_NSD.flatten(0, 1), dy_NSF.flatten(0, 1)
    return {
        "output": (lambda: BatchedLinear.apply(x_NSD, weight_NFD), lambda: x_MD @ weight_FD.T),
        "gradient of states": (lambda: dy_NSF @ weight_NFD, lambda: dy_MF @ weight_FD),
        "gradient of weights": (lambda: dy_NSF.mT @ x_NSD, lambda: dy_MF.T @ x_MD),
    }


@torch.no_grad()
def measure(size: BenchSize, rounds: int = ROUNDS) -> dict[str, Any]:
    """Median milliseconds of each operation, in two ways, and of the extra bytes at copy speed."""
    keep_freed_memory()
    works = operations(size)
    for pair in works.values():
        for work in pair:
            work()
    seconds = [{name: [timed(work) for work in pair] for name, pair in works.items()} for _ in range(rounds)]
    shape, units = size.shape, size.micro_batch_sizes[0] * size.length // size.segment_length
    machine = measure_peaks()
    weights = (units - 1) * shape.hidden_size * shape.intermediate_size
    added = weights * weight_dtype().itemsize / machine.bandwidth
    rows = [
        {
            "product": name,
            "own_ms": round(1e3 * median(found[name][0] for found in seconds), 4),
            "one_ms": round(1e3 * median(found[name][1] for found in seconds), 4),
            "added_ms": round(1e3 * added, 4),
        }
        for name in works
    ]
    peaks = {"matrix_flops": machine.flops, "copy_bandwidth": machine.bandwidth}
    dtype = str(weight_dtype()).removeprefix("torch.")
    return {"segments": units, "dtype": dtype, "rounds": rounds, **peaks, "rows": rows}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path)
    results = parser.parse_args().results
    found = measure(bench_size())
    for row in found["rows"]:
        print(row)
    if results:
        write_results(results, **found)


if __name__ == "__main__":
    main()
