"""Products of rows sorted by expert whose numbers differ in every step, as in top-k: three ways.

python benchmarks/groups.py --results benchmarks/results/groups.json

Forward and backward of two matrices, up and down. `rounded` is the package's on a CPU in bfloat16,
`grouped_mm` torch's, `loop` the naive twin. Every way draws its own numbers of rows in every round: what one
compiles, another with the same numbers would find. The first rounds do not count.
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loriini.bench.models import bench_run, run_config
from loriini.bench.sizes import BenchSize
from loriini.bench.timing import Case, Work, in_rounds
from loriini.common.hardware import keep_freed_memory
from loriini.model.kernels.grouped import grouped_linear_loop, rounded_groups
from measuring import measure_and_write

ROUNDS, WARMUP = 20, 12
EVENNESS = 20.0
"""Of the Dirichlet distribution of experts' shares: standard deviations of a fifth of the even share."""


def torch_groups(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """torch's grouped product."""
    return torch.nn.functional.grouped_mm(x_PD, weight_EOD.mT, offs=ends_E)


Multiply = Callable[[Tensor, Tensor, Tensor], Tensor]
WAYS: dict[str, Multiply] = {
    "rounded": rounded_groups,
    "grouped_mm": torch_groups,
    "loop": grouped_linear_loop,
}


def sizes(size: BenchSize) -> list[tuple[int, int]]:
    """Experts and their widths: those of top-2, and AoE's wider ones of as many parameters."""
    few, width = size.mixtral_experts[0], size.shape.intermediate_size
    wider = run_config(bench_run(size, "aoe", few, low_rank=size.low_ranks[0])).expert_width
    return [*((experts, width) for experts in size.mixtral_experts), (few, wider)]


def random_ends(experts: int, rows: int, random: np.random.Generator) -> Tensor:
    """Where experts' rows end; their shares are from a Dirichlet distribution."""
    shares_E = random.dirichlet(np.full(experts, EVENNESS))
    return torch.from_numpy(random.multinomial(rows, shares_E).cumsum()).to(torch.int32)


def measure(size: BenchSize, rounds: int = ROUNDS, warmup: int = WARMUP) -> dict[str, Any]:
    """Median milliseconds of each way, for each number of experts and width, and the ratios to grouped_mm."""
    keep_freed_memory()
    rows = 2 * size.sparse_batch_size * size.length  # of top-2
    return {
        "rows": rows,
        "rounds": rounds,
        "cases": [of_size(e, w, size.shape.hidden_size, rows, rounds, warmup) for e, w in sizes(size)],
    }


def of_size(experts: int, width: int, hidden: int, rows: int, rounds: int, warmup: int) -> dict[str, Any]:
    """One number of experts and width."""
    random = np.random.default_rng(0)
    x_PD, dy_PD = torch.randn(2, rows, hidden).to(torch.bfloat16)
    up_EFD = torch.randn(experts, width, hidden).to(torch.bfloat16)
    down_EDF = torch.randn(experts, hidden, width).to(torch.bfloat16)
    inputs = [each.requires_grad_() for each in (x_PD, up_EFD, down_EDF)]

    def build(multiply: Multiply) -> Work:
        ends_E = random_ends(experts, rows, random)

        def work() -> None:
            y_PD = multiply(multiply(x_PD, up_EFD, ends_E), down_EDF, ends_E)
            torch.autograd.grad(y_PD, inputs, dy_PD)

        return work

    cases = [Case(name, experts, partial(build, multiply)) for name, multiply in WAYS.items()]
    counted = in_rounds(cases, rounds, warmup)
    seconds = dict(zip(WAYS, zip(*counted, strict=True), strict=True))
    ratios = sorted(a / b for a, b in zip(seconds["grouped_mm"], seconds["rounded"], strict=True))
    return {
        "experts": experts,
        "width": width,
        "ms": {name: 1e3 * median(own) for name, own in seconds.items()},
        "ratio": median(ratios),
        "least": ratios[0],
        "greatest": ratios[-1],
    }


if __name__ == "__main__":
    measure_and_write(__doc__, measure, "cases")
