"""An estimate of a run before it starts: what fits, and what each rank holds and computes."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from loriini.common.checks import LARGEST
from loriini.common.errors import InputError
from loriini.common.hardware import resolve_precision
from loriini.estimate.choice import choose, memory_here, with_recompute
from loriini.estimate.memory import (
    GIB,
    MOST_MEMORY,
    GpuCluster,
    RankMemory,
    check_memory,
    mesh_sizes,
    micro_batch_activations,
    rank_memory,
)
from loriini.estimate.muon import muon_bytes
from loriini.model import LoriiniConfig
from loriini.train.config import TrainConfig


@dataclass(frozen=True)
class Option:
    """A way to run it, the memory that a rank then needs, and whether it fits (None: memory not given)."""

    micro_batch_size: int
    recompute_merge: bool
    activation_checkpointing: bool
    memory: RankMemory
    fits: bool | None


@dataclass(frozen=True)
class Estimate:
    """What is known of a run before it starts."""

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
    """The run's own comes first."""

    def to_dict(self) -> dict[str, Any]:
        """The estimate as a JSON object, with totals."""
        values = asdict(self)
        for entry, option in zip(values["options"], self.options, strict=True):
            entry["memory"]["total"] = option.memory.total
        return values


def estimate(run: TrainConfig, vocab_size: int, cluster: GpuCluster) -> Estimate:
    """The estimate of a run: of its mixture, in bfloat16 unless the run asks for float32.

    Raises InputError for a batch that cannot be shared out, and where nothing fits, with a remedy.
    """
    if cluster.gpus < 1:
        raise InputError(f"--gpus {cluster.gpus}: give at least 1")
    if not 1 <= vocab_size <= LARGEST:
        raise InputError(f"--vocab-size {vocab_size}: give at least 1 and at most {LARGEST:g}")
    run.check(processes=cluster.gpus)
    config = run.config(vocab_size)
    check_memory(run, config, cluster.gpus, MOST_MEMORY, "the largest that is estimated")
    chosen_for = None
    if run.has_auto:
        chosen_for = cluster.gpu_memory or memory_here()
        precision = run.precision if cluster.gpu_memory else resolve_precision(run.precision)
        chosen = choose(replace(run, precision=precision), config, cluster.gpus, chosen_for).run
        run = run.chosen(chosen.micro_batch_size, chosen.model.recompute_merge)
        config.recompute_merge = run.model.recompute_merge is True
    options = tuple(find_options(run, config, cluster))
    if cluster.gpu_memory is not None and not any(option.fits for option in options):
        least = min(option.memory.total for option in options)
        raise InputError(
            f"{run.name} does not fit: each of {cluster.gpus} GPUs would hold {least / GIB:.1f} GiB, "
            f"but --memory is {cluster.gpu_memory / GIB:.1f} GiB; use more --gpus, or a smaller model"
        )
    total, active = config.parameters()
    flops, tokens = config.flops_per_token(run.length), run.batch_size * run.length
    return Estimate(
        name=run.name,
        run=run.to_dict(),
        gpus=cluster.gpus,
        gpu_memory=cluster.gpu_memory,
        vocab_size=config.vocab_size,
        parameters_total=total,
        parameters_active=active,
        flops_per_token=flops,
        tokens_per_step=tokens,
        flops_per_step=flops * tokens,
        muon_bytes=gathered_bytes(run, config, cluster.gpus),
        chosen_for=chosen_for,
        options=options,
    )


def gathered_bytes(run: TrainConfig, config: LoriiniConfig, gpus: int) -> float:
    """`muon_bytes` of a run; 0 with AdamW."""
    if run.optimizer.name != "muon":
        return 0.0
    return muon_bytes(config, *mesh_sizes(run, gpus), run.parallel.share_experts)


def find_options(run: TrainConfig, config: LoriiniConfig, cluster: GpuCluster) -> Iterator[Option]:
    """Micro-batches of the run's size and smaller, with and without activation checkpointing.

    Where experts are merged, with merged weights kept and recomputed.
    """
    size, own = run.instances_at_once(run.batch_size // cluster.gpus), run.speed.activation_checkpointing
    other = [with_recompute(config, not config.recompute_merge)] if config.merges else []
    while size:
        for merging in (config, *other):
            activations = micro_batch_activations(run, merging, size)
            for checkpointing in (own, not own):
                memory = rank_memory(run, merging, cluster.gpus, size, checkpointing, activations)
                fits = None if cluster.gpu_memory is None else memory.total <= cluster.gpu_memory
                yield Option(size, merging.recompute_merge, checkpointing, memory, fits)
        size //= 2
