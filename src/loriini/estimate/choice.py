"""The micro-batch of a run, and whether it merges experts again, chosen by the estimate of its memory."""

import os
from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from loriini.common.hardware import JOBS_HERE, machine_memory, pick_device
from loriini.estimate.activations import merged_parameters
from loriini.estimate.memory import (
    compute_dtype,
    least_memory,
    mesh_sizes,
    micro_batch_activations,
    rank_memory,
)
from loriini.model import LoriiniConfig
from loriini.train.config import AUTO, TrainConfig

MARGIN = 0.1
"""Fraction of the memory that is left free, for fragmentation and for other uses of the device."""
FEW = 0.1
"""Fraction of the memory below which merged weights are kept without an estimate."""


@dataclass(frozen=True)
class Choice:
    """A run with its `auto` values resolved, and the bytes that a rank needs (None: not estimated)."""

    run: TrainConfig
    total: float | None = None


def choose(
    run: TrainConfig, config: LoriiniConfig, ranks: int, memory: float, positions_NL: Tensor | None = None
) -> Choice:
    """Choose the settings that a run leaves to `auto`, for ranks with `memory` bytes each.

    The micro-batch is a rank's whole share of the batch or the largest power of two that divides it, such
    that MARGIN of the memory stays free; if none fits, one instance. Merged weights are recomputed where
    nothing else fits, or where the larger micro-batch that this allows saves more traffic than it costs.
    `positions_NL`, positions in documents of instances like the run's, determine how full packed rows are.
    """
    share, limit = run.batch_size // ranks, (1 - MARGIN) * memory
    sizes = micro_batch_sizes(share) if run.micro_batch_size == AUTO else [run.instances_at_once(share)]
    own = run.model.recompute_merge
    recomputes = [own is True] if own != AUTO or not config.merges else [False, True]
    kept_bytes = merged_parameters(config, sizes[0], run.length, positions_NL) * compute_dtype(run).itemsize
    if len(sizes) == 1 and (len(recomputes) == 1 or config.num_hidden_layers * kept_bytes < FEW * memory):
        return Choice(run.chosen(run.micro_batch_size, recomputes[0]))

    def fits(size: int, recompute: bool) -> bool:
        least = least_memory(replace(run, micro_batch_size=size), config, ranks)
        return least <= limit and needed_memory(run, config, ranks, size, recompute, positions_NL) <= limit

    fitting = [(size, each) for each in recomputes for size in _largest(sizes, partial(fits, recompute=each))]
    sharded = mesh_sizes(run, ranks)[0] > 1  # every micro-batch gathers all weights

    def cost(found: tuple[int, bool]) -> tuple[float, float]:
        size, recompute = found
        traffic = merge_traffic(config, size, run.length, recompute, positions_NL) if config.merges else 0.0
        return (-size, traffic) if sharded else (traffic, -size)

    size, recompute = min(fitting, key=cost, default=(sizes[-1], recomputes[-1]))
    return Choice(
        run.chosen(size, recompute), needed_memory(run, config, ranks, size, recompute, positions_NL)
    )


def needed_memory(
    run: TrainConfig,
    config: LoriiniConfig,
    ranks: int,
    size: int,
    recompute: bool,
    positions_NL: Tensor | None = None,
) -> float:
    """Bytes of each of `ranks` with micro-batches of `size`, where merged weights are recomputed or kept."""
    config = with_recompute(config, recompute)
    counted = micro_batch_activations(run, config, size, positions_NL)
    return rank_memory(run, config, ranks, size, run.speed.activation_checkpointing, counted).total


def with_recompute(config: LoriiniConfig, recompute: bool) -> LoriiniConfig:
    """A copy of a configuration that recomputes merged weights in the backward pass, or keeps them."""
    changed = copy(config)
    changed.recompute_merge = recompute
    return changed


def micro_batch_sizes(share: int) -> list[int]:
    """`share` and the smaller powers of two that divide it, largest first."""
    largest = share & -share
    powers = [1 << i for i in reversed(range(largest.bit_length()))]
    return [share, *(power for power in powers if power < share)]


def merge_traffic(
    config: LoriiniConfig, instances: int, length: int, recompute: bool, positions_NL: Tensor | None = None
) -> float:
    """Bytes that merging in bfloat16 moves for each merged parameter, by what a micro-batch shares.

    Kept weights are written, and their gradients written and read twice; recomputed weights are written
    once more. In every micro-batch the experts are read for each merge and for the gates' gradient, and their
    gradients are added in float32; where merges are recomputed they are also cast from float32 before each.
    """
    units = merged_parameters(config, instances, length, positions_NL) / merged_parameters(config, 1, 1)
    of_experts, of_merged = (26, 6) if recompute else (12, 4)
    return of_experts * (config.num_experts - 1) / units + of_merged


def memory_here() -> float:
    """Bytes for this rank: the GPU's, or its part of the machine's; where jobs share it, a job's part."""
    ranks = 1 if pick_device().type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() / ranks / int(os.environ.get(JOBS_HERE, "1"))


def _largest(sizes: list[int], fits: Callable[[int], bool]) -> list[int]:
    """The first of `sizes` that fits; empty if none does."""
    i = bisect_left(sizes, True, key=fits)
    return sizes[i : i + 1]
