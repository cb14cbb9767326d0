"""An estimate of a run before it starts: what fits, and what each rank holds and computes."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from loriini.common.checks import LARGEST
from loriini.common.errors import InputError
from loriini.common.hardware import resolve_precision
from loriini.estimate.choice import choose, memory_here
from loriini.estimate.memory import (
    GIB,
    MOST_MEMORY,
    MemoryOf,
    RankMemory,
    check_memory,
    memory_by_option,
    mesh_sizes,
)
from loriini.estimate.muon import muon_bytes
from loriini.train.config import TrainConfig


@dataclass(frozen=True)
class Option:
    """One way to train a run, the memory that a rank needs for it, and whether that fits (None: unknown)."""

    micro_batch_size: int
    recompute_merge: bool
    activation_checkpointing: bool
    memory: RankMemory
    fits: bool | None


@dataclass(frozen=True)
class Estimate:
    """The sizes, cost and memory of a run, estimated before it starts."""

    name: str
    run: dict[str, Any]
    """The run's settings, as in `run.json`."""
    gpus: int
    gpu_memory: float | None
    vocab_size: int
    parameters_total: int
    parameters_active: int
    flops_per_token: float
    tokens_per_step: int
    flops_per_step: float
    muon_bytes: float
    """Bytes that a rank sends, and receives, in a step to make matrices whole for Muon."""
    chosen_for: float | None
    """Bytes of memory for which the run's `auto` settings were chosen; None if it has none."""
    options: tuple[Option, ...]
    """The run's own settings come first."""

    def to_dict(self) -> dict[str, Any]:
        """The estimate as a JSON object, with totals."""
        values = asdict(self)
        for entry, option in zip(values["options"], self.options, strict=True):
            entry["memory"]["total"] = option.memory.total
        return values


def estimate(run: TrainConfig, vocab_size: int, gpus: int = 1, gpu_memory: float | None = None) -> Estimate:
    """Estimate a run: its mixture, not its dense warm-up, in bfloat16 unless the run asks for float32.

    `gpu_memory` is the bytes of each GPU, if known; the run sets how they share a model. InputError for
    settings that do not fit each other or the GPUs, and if no option fits the memory.
    """
    if gpus < 1:
        raise InputError(f"--gpus {gpus}: give at least 1")
    if not 1 <= vocab_size <= LARGEST:
        raise InputError(f"--vocab-size {vocab_size}: give at least 1 and at most {LARGEST:g}")
    run.check(processes=gpus)
    config = run.config(vocab_size)
    check_memory(run, config, gpus, MOST_MEMORY, "the largest that is estimated")
    memory_of, chosen_for = memory_by_option(run, config, gpus), None
    if run.has_auto_size:
        chosen_for = gpu_memory or memory_here()
        here = run if gpu_memory else replace(run, precision=resolve_precision(run.precision))
        chosen, _ = choose(here, config, gpus, chosen_for, memory_of if here is run else None)
        run = run.fill_auto(chosen.micro_batch_size, chosen.model.recompute_merge)
    options = tuple(find_options(run, gpus, gpu_memory, memory_of))
    if gpu_memory is not None and not any(option.fits for option in options):
        least = min(option.memory.total for option in options)
        raise InputError(
            f"{run.name} does not fit: each of {gpus} GPUs would hold {least / GIB:.1f} GiB, "
            f"but --memory is {gpu_memory / GIB:.1f} GiB; use more --gpus, or a smaller model"
        )
    total, active = config.parameters()
    mesh = (*mesh_sizes(run, gpus), run.parallel.share_experts)
    flops, tokens = config.flops_per_token(run.length), run.batch_size * run.length
    return Estimate(
        name=run.name,
        run=run.to_dict(),
        gpus=gpus,
        gpu_memory=gpu_memory,
        vocab_size=config.vocab_size,
        parameters_total=total,
        parameters_active=active,
        flops_per_token=flops,
        tokens_per_step=tokens,
        flops_per_step=flops * tokens,
        muon_bytes=muon_bytes(config, *mesh) if run.optimizer.name == "muon" else 0.0,
        chosen_for=chosen_for,
        options=options,
    )


def find_options(
    run: TrainConfig, gpus: int, gpu_memory: float | None, memory_of: MemoryOf
) -> Iterator[Option]:
    """Micro-batches of the run's size and smaller, with and without activation checkpointing.

    Where experts are merged, with merged weights kept and recomputed.
    """
    size = run.instances_at_once(run.batch_size // gpus)
    own, checkpointing = run.model.recompute_merge is True, run.speed.activation_checkpointing
    recomputes = (own, not own) if run.merges else (own,)
    while size:
        for way in product(recomputes, (checkpointing, not checkpointing)):
            memory = memory_of(size, *way)
            fits = None if gpu_memory is None else memory.total <= gpu_memory
            yield Option(size, *way, memory, fits)
        size //= 2
