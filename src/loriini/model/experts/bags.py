"""Products of few rows on a CPU as weighted sums of rows of the other factor: bags of an embedding.

Matrix products of few rows read the other factor more slowly than `embedding_bag` reads its table: merges, in
bfloat16 and float32, at about half of its speed, and in bfloat16 single tokens their weights at 0.6 of it.

Axes: N units, S slots in a unit, E experts, P parameters of a matrix, flattened, D input width, O output
width, K blocks of W outputs each.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

DTYPES = (torch.float32, torch.bfloat16)
"""Those whose bags are faster than products on a CPU."""
MOST_PARTS = 256
"""The most rows into which an expert's matrix is split for a bag."""
WIDEST_BLOCK = 256
"""The most outputs of a block: a bag's sum stays in registers."""
NARROWEST_BLOCK = 64
"""The fewest outputs of a block, but for weights with fewer."""


def bags_are_fast(weight: Tensor) -> bool:
    """Whether few weighted sums of stacked weights are faster as bags."""
    return weight.device.type == "cpu" and weight.dtype in DTYPES


def weighted_sum_by_bags(gates_NE: Tensor, weight_EP: Tensor) -> Tensor:
    """Σ_i e_i W_i of each unit; (N, P).

    A row is a part of an expert's matrix, so that all threads share the experts. All units sum a part before
    the next: only the first reads it from memory.
    """
    (N, E), P = gates_NE.shape, weight_EP.shape[1]
    parts = math.gcd(P, MOST_PARTS)
    rows = torch.arange(E) * parts + torch.arange(parts)[:, None]
    sums = embedding_bag(
        rows.repeat_interleave(N, dim=0),
        weight_EP.reshape(E * parts, P // parts),
        mode="sum",
        per_sample_weights=gates_NE.repeat(parts, 1),
    )
    return sums.view(parts, N, -1).transpose(0, 1).reshape(N, P)


def in_blocks(weight_NOD: Tensor) -> Tensor:
    """Weights (N, K, D, W) for `linear_by_bags`: transposed, in blocks of outputs."""
    units, outputs, _ = weight_NOD.shape
    width = block_width(units, outputs, torch.get_num_threads())
    return weight_NOD.unflatten(1, (-1, width)).mT.contiguous()


def block_width(units: int, outputs: int, threads: int) -> int:
    """How many outputs a block has, a divisor of `outputs`: as many as possible with a bag for each thread.

    All outputs where no divisor is within the limits.
    """
    most = max(NARROWEST_BLOCK, min(WIDEST_BLOCK, units * outputs // threads, outputs))
    width = next(width for width in range(most, 0, -1) if outputs % width == 0)
    return width if width >= NARROWEST_BLOCK else outputs


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
