"""Choice of a run's micro-batch, and of whether it recomputes merged weights, by its estimated memory."""

import os
from bisect import bisect_left
from dataclasses import replace
from functools import partial

from loriini.common.errors import InputError
from loriini.common.hardware import JOBS_HERE, machine_memory, pick_device
from loriini.estimate.activations import merged_parameters
from loriini.estimate.memory import MemoryOf, compute_dtype, least_memory, memory_by_option
from loriini.model import LoriiniConfig
from loriini.train.config import AUTO, TrainConfig

MARGIN = 0.1
"""Fraction of the memory that is left free, for fragmentation and for other uses of the device."""
FEW = 0.1
"""Fraction of the memory below which merged weights are kept without an estimate."""


def choose(
    run: TrainConfig, config: LoriiniConfig, ranks: int, memory: float, memory_of: MemoryOf | None = None
) -> tuple[TrainConfig, float | None]:
    """The run with its `auto` values chosen for ranks with `memory` bytes each, and the bytes a rank needs.

    The micro-batch is a rank's whole share of the batch or the largest power of two that divides it, such
    that MARGIN of the memory stays free; if none fits, one instance. Merged weights are kept, or recomputed
    where that allows a larger micro-batch. With `document_mask` the memory depends on the documents' lengths
    and is not estimated (None): merged weights are recomputed, and an `auto` micro-batch is an InputError.
    """
    share, limit = run.batch_size // ranks, (1 - MARGIN) * memory
    sizes = micro_batch_sizes(share) if run.micro_batch_size == AUTO else [run.instances_at_once(share)]
    own = run.model.recompute_merge
    recomputes = [own is True] if own != AUTO or not config.merges else [False, True]
    if run.document_mask:
        if run.micro_batch_size == AUTO:
            raise InputError(
                "--micro_batch_size auto: with --document_mask the memory depends on the documents; give a "
                "number"
            )
        return run.fill_auto(run.micro_batch_size, recomputes[-1]), None
    kept_bytes = merged_parameters(config, sizes[0], run.length) * compute_dtype(run).itemsize
    if len(sizes) == 1 and (len(recomputes) == 1 or config.num_hidden_layers * kept_bytes < FEW * memory):
        return run.fill_auto(run.micro_batch_size, recomputes[0]), None
    memory_of = memory_of or memory_by_option(run, config, ranks)
    checkpointing = run.speed.activation_checkpointing

    def fits(size: int, recompute: bool) -> bool:
        least = least_memory(replace(run, micro_batch_size=size), config, ranks)
        return least <= limit and memory_of(size, recompute, checkpointing).total <= limit

    fitting: list[tuple[int, bool]] = []
    for each in recomputes:
        first = bisect_left(sizes, True, key=partial(fits, recompute=each))
        fitting += [(size, each) for size in sizes[first : first + 1]]
    size, recompute = max(fitting, key=lambda found: found[0], default=(sizes[-1], recomputes[-1]))
    return run.fill_auto(size, recompute), memory_of(size, recompute, checkpointing).total


def micro_batch_sizes(share: int) -> list[int]:
    """`share` and the smaller powers of two that divide it, largest first."""
    largest = share & -share
    powers = [1 << i for i in reversed(range(largest.bit_length()))]
    return [share, *(power for power in powers if power < share)]


def memory_here() -> float:
    """Bytes for this rank: its GPU's memory or its share of the machine's, split among jobs that share it."""
    ranks = 1 if pick_device().type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return machine_memory() / ranks / int(os.environ.get(JOBS_HERE, "1"))
