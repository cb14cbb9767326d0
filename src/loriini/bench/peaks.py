"""The measured peak rates of this machine: of matrix products, and of copies in memory."""

import torch

from loriini.bench.operations import Machine
from loriini.bench.timing import Work, timed
from loriini.common.hardware import has_bf16, pick_device

REPETITIONS = 10
SHAPES = ((2, 1, 1), (4, 1, 3), (8, 2, 2))
"""Rows, inner size and columns of the products, in multiples of a size."""


def measure_peaks(quick: bool = False) -> Machine:
    """The fastest of several matrix products of a transformer's shapes, and of several copies, once warm.

    A copy of n bytes moves 2n.
    """
    device = pick_device()
    on_gpu = device.type == "cuda"
    n = 1 << (31 if on_gpu else 22 if quick else 28)
    source = torch.zeros(n, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    size = 4096 if on_gpu else 256 if quick else 512
    return Machine(
        bandwidth=2 * n / fastest(lambda: target.copy_(source)),
        flops=max(product_flops(*(size * multiple for multiple in shape)) for shape in SHAPES),
    )


def product_flops(rows: int, inner: int, columns: int) -> float:
    """FLOPs a second of a product in the dtype of computation."""
    device = pick_device()
    dtype = torch.bfloat16 if has_bf16(device) else torch.float32
    a = torch.randn(rows, inner, device=device, dtype=dtype)
    b = torch.randn(inner, columns, device=device, dtype=dtype)
    return 2 * rows * inner * columns / fastest(lambda: a @ b)


def fastest(work: Work) -> float:
    """The least seconds of several calls after as many that are not timed."""
    for _ in range(REPETITIONS):
        work()
    return min(timed(work) for _ in range(REPETITIONS))
