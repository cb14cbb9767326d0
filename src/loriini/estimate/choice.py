"""The micro-batch of a run, and whether it merges experts again, chosen by the estimate of its memory."""

import os
from bisect import bisect_left
from copy import copy
from dataclasses import dataclass, replace

from loriini.estimate.activations import merged_parameters
from loriini.estimate.memory import compute_dtype, least_memory, mesh_sizes, rank_memory
from loriini.hardware import machine_memory, pick_device
from loriini.model import LoriiniConfig
from loriini.train.run import AUTO, Run

MARGIN = 0.1
"""Fraction of the memory that is left free, for fragmentation and for other uses of the device."""
FEW = 0.1
"""Fraction of the memory below which merged weights are kept without an estimate."""


@dataclass(frozen=True)
class Choice:
    """A run with its `auto` values resolved, and the bytes that a rank needs (None: not estimated)."""

    run: Run
    total: float | None = None


def choose(run: Run, config: LoriiniConfig, ranks: int, memory: float) -> Choice:
    """Choose the settings that a run leaves to `auto`, for ranks with `memory` bytes each.

    The micro-batch is a rank's whole share of the batch or the largest power of two that divides it, such
    that MARGIN of the memory stays free; if none fits, one instance. Experts are merged again where nothing
    else fits, or where the larger micro-batch that this allows saves more traffic than it costs.
    """
    share, limit = run.batch_size // ranks, (1 - MARGIN) * memory
    sizes = divisors(share) if run.micro_batch_size == AUTO else [run.instances_at_once(share)]
    merges = merged_parameters(config, 1, run.length) > 0
    own = run.model.recompute_merge
    ways = [own is True] if own != AUTO or not merges else [False, True]
    kept_bytes = merged_parameters(config, sizes[0], run.length) * compute_dtype(run).itemsize
    if len(sizes) == 1 and (len(ways) == 1 or config.num_hidden_layers * kept_bytes < FEW * memory):
        return Choice(run.chosen(run.micro_batch_size, ways[0]))
    fitting = [found for way in ways for found in _largest(run, config, ranks, sizes, limit, way)]
    if not fitting:
        return _choice(run, config, ranks, sizes[-1], ways[-1])
    sharded = mesh_sizes(run, ranks)[0] > 1  # every micro-batch gathers all weights

    def cost(found: tuple[int, bool]) -> tuple[float, float]:
        size, way = found
        traffic = merge_traffic(config, size, run.length, way) if merges else 0.0
        return (-size, traffic) if sharded or not merges else (traffic, -size)

    return _choice(run, config, ranks, *min(fitting, key=cost))


def divisors(share: int) -> list[int]:
    """`share` and the smaller powers of two that divide it, largest first."""
    largest = share & -share
    powers = [1 << i for i in reversed(range(largest.bit_length()))]
    return [share, *(power for power in powers if power < share)]


def merge_traffic(config: LoriiniConfig, instances: int, length: int, again: bool) -> float:
    """Bytes that merging in bfloat16 moves for each merged parameter, by what a micro-batch shares.

    Kept weights are written, and their gradients written and read twice; weights merged again are written
    once more. The experts are read for each merge, their gradients added in float32, once a micro-batch.
    """
    units = merged_parameters(config, instances, length) / merged_parameters(config, 1, 1)
    of_experts, of_merged = (14, 6) if again else (12, 4)
    return of_experts * (config.num_experts - 1) / units + of_merged


def memory_here() -> float:
    """Bytes for this rank: the GPU's, or its part of the machine's."""
    ranks = 1 if pick_device().type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() / ranks


def _largest(
    run: Run, config: LoriiniConfig, ranks: int, sizes: list[int], limit: float, again: bool
) -> list[tuple[int, bool]]:
    """The first of `sizes` that fits in `limit` bytes, with the way of merging; empty if none does."""

    def fits(size: int) -> bool:
        least = least_memory(replace(run, micro_batch_size=size), config, ranks)
        return least <= limit and _total(run, config, ranks, size, again) <= limit

    i = bisect_left(sizes, True, key=fits)
    return [(sizes[i], again)] if i < len(sizes) else []


def _total(run: Run, config: LoriiniConfig, ranks: int, size: int, again: bool) -> float:
    config = copy(config)
    config.recompute_merge = again
    return rank_memory(run, config, ranks, size, run.speed.activation_checkpointing).total


def _choice(run: Run, config: LoriiniConfig, ranks: int, size: int, again: bool) -> Choice:
    return Choice(run.chosen(size, again), _total(run, config, ranks, size, again))
