"""The measured peak rates of this machine: of matrix products, and of copies in memory."""

import torch

from loriini.bench.operations import Machine
from loriini.bench.timing import timed
from loriini.hardware import has_bf16, pick_device

REPETITIONS = 10


def measure_peaks(quick: bool = False) -> Machine:
    """The fastest of several matrix products of a transformer's shapes, and of several copies.

    A copy of n bytes moves 2n.
    """
    device = pick_device()
    on_gpu = device.type == "cuda"
    size = 256 if quick else 8192 if on_gpu else 1024
    dtype = torch.bfloat16 if has_bf16(device) else torch.float32
    a = torch.randn(2 * size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    product = min(timed(lambda: a @ b) for _ in range(REPETITIONS))
    n = 1 << (22 if quick else 31 if on_gpu else 28)
    source = torch.zeros(n, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    copy = min(timed(lambda: target.copy_(source)) for _ in range(REPETITIONS))
    return Machine(bandwidth=2 * n / copy, flops=2 * 2 * size**3 / product)
