"""The products of an FFN's matrix: by each segment's own weights, as in Lory, and by one weight, as in dense.

python benchmarks/products.py --results benchmarks/results/products.json

All operations take turns. `added_ms` is how long the extra bytes of a segment's own weights, read or written
once, take at the measured copy bandwidth.
"""

from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from loriini.bench.models import weight_dtype
from loriini.bench.peaks import measure_peaks
from loriini.bench.sizes import BenchSize
from loriini.bench.timing import Case, Work, in_rounds
from loriini.common.hardware import keep_freed_memory, pick_device
from loriini.model.kernels.products import batched_linear
from measuring import measure_and_write

ROUNDS = 15
WAYS = ("own", "one", "columns")


def operations(size: BenchSize) -> dict[str, tuple[Work, Work, Work]]:
    """By name, a product for all segments with their own weights, and the same with one weight.

    The latter in the usual layout and with wide states as columns, as segments' are on a CPU.
    """
    d, f, slots = size.shape.hidden_size, size.shape.intermediate_size, size.segment_length
    units = segments(size)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, device=pick_device()).to(weight_dtype())

    x_NSD, weight_NFD = random(units, slots, d), random(units, f, d)
    dy_NSF = torch.randn_like(batched_linear(x_NSD, weight_NFD))  # in the layout of the output
    x_MD, weight_FD = x_NSD.flatten(0, 1), weight_NFD[0]
    dy_MF = dy_NSF.flatten(0, 1).contiguous()
    dy_FM = dy_MF.T.contiguous()
    return {
        "output": (
            lambda: batched_linear(x_NSD, weight_NFD),
            lambda: x_MD @ weight_FD.T,
            lambda: weight_FD @ x_MD.T,
        ),
        "gradient of states": (
            lambda: dy_NSF @ weight_NFD,
            lambda: dy_MF @ weight_FD,
            lambda: dy_FM.T @ weight_FD,
        ),
        "gradient of weights": (
            lambda: dy_NSF.mT @ x_NSD,
            lambda: dy_MF.T @ x_MD,
            lambda: dy_FM @ x_MD,
        ),
    }


def segments(size: BenchSize) -> int:
    """Segments of a micro-batch."""
    return size.micro_batch_sizes[0] * size.length // size.segment_length


@torch.no_grad()
def measure(size: BenchSize, rounds: int = ROUNDS) -> dict[str, Any]:
    """Median milliseconds of each operation, in two ways, and of the extra bytes at copy speed."""
    keep_freed_memory()
    units, works = segments(size), operations(size)
    cases = [Case(name, units, partial(warmed, work)) for name, ways in works.items() for work in ways]
    seconds = map(median, zip(*in_rounds(cases, rounds), strict=True))
    machine = measure_peaks()
    weights = (units - 1) * size.shape.hidden_size * size.shape.intermediate_size
    added = weights * weight_dtype().itemsize / machine.bandwidth
    rows = [
        {"product": name, **{f"{way}_ms": 1e3 * next(seconds) for way in WAYS}, "added_ms": 1e3 * added}
        for name in works
    ]
    peaks = {"matrix_flops": machine.flops, "copy_bandwidth": machine.bandwidth}
    return {"segments": units, "rounds": rounds, **peaks, "rows": rows}


def warmed(work: Work) -> Work:
    """The work, which has run once."""
    work()
    return work


if __name__ == "__main__":
    measure_and_write(__doc__, measure, "rows")
