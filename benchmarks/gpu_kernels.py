"""The merge's kernel beside its twin and beside copies; segments' products beside one large product."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from loriini.bench.models import weight_dtype
from loriini.bench.operations import Machine
from loriini.bench.peaks import fastest, measure_peaks
from loriini.bench.sizes import QUICK, BenchSize
from loriini.bench.timing import Attempts, Work
from loriini.common.hardware import pick_device
from loriini.model.kernels import merge_kernels
from products import operations, segments

CALLS = 20
"""Calls in a row that are timed on a GPU, which runs them while the next are launched."""
MERGE, PRODUCTS = "merge", "merge gradients, products"
KERNELS: Mapping[str, Callable[[dict[str, int]], dict[str, int]]] = {
    "merge gradients, kernel": lambda sizes: sizes,
    "merge gradients, kernel of 8 warps": lambda sizes: {**sizes, "num_warps": 8},
    "merge gradients, kernel of half the columns": lambda sizes: {**sizes, "BLOCK_P": sizes["BLOCK_P"] // 2},
}
"""The kernel with its own and with other block sizes."""


def kernel_rows(size: BenchSize, attempts: Attempts) -> Iterator[dict[str, Any]]:
    """Rows of every operation for each number of experts, at the smallest and the largest micro-batch.

    `ratio` is the speed relative to copies of as many bytes; that of products, to one large product.
    """
    machine = measure_peaks(size.shape == QUICK.shape)
    numbers = dict.fromkeys((size.micro_batch_sizes[0], size.micro_batch_sizes[-1]))
    singles = [replace(size, micro_batch_sizes=(number,)) for number in numbers]
    for single, experts in product(singles, size.experts):
        kernels = KERNELS if merge_kernels.runs_on(pick_device(), weight_dtype(), experts) else ()
        for name in (MERGE, PRODUCTS, *kernels):
            what = f"{name}, {experts} experts, N = {segments(single)}"
            row = attempts.attempt(what, partial(merge_row, name, single, experts, machine))
            if row:
                yield row
    for single in singles:
        what = f"products, N = {segments(single)}"
        yield from attempts.attempt(what, partial(product_rows, single)) or ()


def merge_row(name: str, size: BenchSize, experts: int, machine: Machine) -> dict[str, Any]:
    """The merge of one matrix, or the gradients of its gates and experts, these added up in float32."""
    N, E, P = segments(size), experts, size.shape.hidden_size * size.shape.intermediate_size
    device, dtype = pick_device(), weight_dtype()
    gates_NE = torch.rand(N, E, device=device).to(dtype)
    weight_EP = torch.randn(E, P, device=device).to(dtype)
    moved = (N + E) * P * dtype.itemsize  # experts and merged weights, or the gradients of these
    if name == MERGE:
        work: Work = lambda: gates_NE @ weight_EP  # noqa: E731
    else:
        moved += 2 * E * P * torch.float32.itemsize
        dmerged_NP = torch.randn(N, P, device=device).to(dtype)
        total_EP = torch.zeros(E, P, device=device)
        if name == PRODUCTS:
            work = partial(add_by_products, dmerged_NP, gates_NE, weight_EP, total_EP)
        else:
            sizes = KERNELS[name](merge_kernels.block_sizes(E))
            given = (dmerged_NP, gates_NE, weight_EP, total_EP)
            work = partial(merge_kernels.launch, *given, add=True, sizes=sizes)
    return {"operation": name, "experts": E, "segments": N, **beside_copy(seconds_of(work), moved, machine)}


def add_by_products(dmerged_NP: Tensor, gates_NE: Tensor, weight_EP: Tensor, total_EP: Tensor) -> None:
    """What the kernel computes, by its twin."""
    _, dweight_EP = merge_kernels.merge_gradients_twin(dmerged_NP, gates_NE, weight_EP)
    total_EP += dweight_EP


def beside_copy(seconds: float, moved: int, machine: Machine) -> dict[str, float]:
    """Milliseconds, GB/s of the bytes that have to be moved, and the ratio to the copy speed."""
    return {
        "ms": round(1e3 * seconds, 4),
        "gigabytes_per_second": round(1e-9 * moved / seconds, 1),
        "ratio": round(moved / seconds / machine.bandwidth, 4),
    }


@torch.no_grad()
def product_rows(size: BenchSize) -> list[dict[str, Any]]:
    """Products of all segments with weights of their own, relative to one large product with one weight."""
    rows = []
    for name, (own, one, _) in operations(size).items():
        seconds, reference = seconds_of(own), seconds_of(one)
        times = {"ms": round(1e3 * seconds, 4), "one_ms": round(1e3 * reference, 4)}
        ratio = round(reference / seconds, 4)
        rows.append({"operation": f"product: {name}", "segments": segments(size), **times, "ratio": ratio})
    return rows


def seconds_of(work: Work) -> float:
    """Seconds of one call."""
    calls = CALLS if pick_device().type == "cuda" else 1
    return fastest(lambda: [work() for _ in range(calls)]) / calls
