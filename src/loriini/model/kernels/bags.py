"""Products of few rows on a CPU as weighted sums of rows of the other factor: bags of an embedding.

Matrix products of few rows read the other factor more slowly than `embedding_bag` reads its table: merges, in
bfloat16 and float32, at about half of its speed, and in bfloat16 single tokens their weights at 0.6 of it.

Axes: N units, S slots in a unit, E experts, P parameters of a matrix, flattened, D input width, O output
width, K blocks of W outputs each.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

DTYPES = (torch.float32, torch.bfloat16)
"""Those whose bags are faster than products on a CPU."""
WIDEST_PART = 448
"""The most parameters of a part of an expert's matrix: their sum stays in 28 registers of 512 bits."""
WIDEST_BLOCK = 256
"""The most outputs of a block."""
NARROWEST = 64
"""The fewest numbers of a row of a bag, but for weights with fewer."""


def bags_are_fast(weight: Tensor) -> bool:
    """Whether few weighted sums of stacked weights are faster as bags."""
    return weight.device.type == "cpu" and weight.dtype in DTYPES


def weighted_sum_by_bags(gates_NE: Tensor, weight_EP: Tensor) -> Tensor:
    """Σ_i e_i W_i of each unit; (N, P).

    A row is a part of an expert's matrix. All units sum a part before the next: only the first reads it from
    memory.
    """
    (N, E), P = gates_NE.shape, weight_EP.shape[1]
    width = divisor(P, WIDEST_PART)
    parts = P // width
    rows = torch.arange(E, dtype=torch.int32) * parts + torch.arange(parts, dtype=torch.int32)[:, None]
    sums = embedding_bag(
        rows[:, None].expand(-1, N, -1).reshape(-1, E),
        weight_EP.reshape(E * parts, width),
        mode="sum",
        per_sample_weights=gates_NE.expand(parts, -1, -1).reshape(-1, E),
    )
    return sums.view(parts, N, -1).transpose(0, 1).reshape(N, P)


def in_blocks(weight_NOD: Tensor) -> Tensor:
    """Weights (N, K, D, W) for `linear_by_bags`: transposed, in blocks of outputs."""
    units, outputs, _ = weight_NOD.shape
    width = block_width(units, outputs, torch.get_num_threads())
    return weight_NOD.unflatten(1, (-1, width)).mT.contiguous()


def block_width(units: int, outputs: int, threads: int) -> int:
    """How many outputs a block has: as many as possible with a bag for each thread."""
    return divisor(outputs, max(NARROWEST, min(WIDEST_BLOCK, units * outputs // threads)))


def divisor(number: int, most: int) -> int:
    """The greatest divisor of a number that is at most `most` and at least `NARROWEST`, else the number."""
    return next((n for n in range(min(number, most), NARROWEST - 1, -1) if number % n == 0), number)


def linear_by_bags(x_ND: Tensor, weight_NKDW: Tensor) -> Tensor:
    """x Wᵀ of one token a unit by its own weight, `in_blocks`; (N, O). The twin is `batched_linear`."""
    N, K, D, W = weight_NKDW.shape
    sums = embedding_bag(
        torch.arange(N * K * D, dtype=torch.int32).view(N * K, D),
        weight_NKDW.flatten(0, 2),
        mode="sum",
        per_sample_weights=x_ND.repeat_interleave(K, dim=0),
    )
    return sums.view(N, K * W)
