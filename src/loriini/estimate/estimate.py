"""Before a run starts: what fits, what each rank holds, what it computes and what it receives."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any

import torch

from loriini.errors import InputError
from loriini.estimate.activations import footprint
from loriini.estimate.communication import FLOAT32, Traffic, Work, expert_parallel, expert_wise, fsdp, parts
from loriini.hardware import peak_flops
from loriini.model import LoriiniConfig
from loriini.model.loss import has_fused_loss
from loriini.train.run import Run

GIB = 1 << 30
PAPER_GPUS = (8, 64, 512, 4096)
"""How many GPUs the parallelisms are compared at, each with one micro-batch a step."""
NODE = 8
"""GPUs of a node: the largest group that shares experts."""
LARGEST = 1 << 14
"""GPUs up to which a remedy is sought."""


@dataclass(frozen=True)
class Cluster:
    """So many GPUs, of `memory` bytes each where that is known; the run says how they share a model."""

    gpus: int = 1
    memory: float | None = None


@dataclass(frozen=True)
class Holding:
    """Bytes on each rank at the peak of a step, when its backward pass begins.

    `gathered` are the weights that layers compute with: two whole layers and what is outside the layers, or
    on one GPU the copies that autocast makes. `merged`, the weights of merged experts, are a part of
    `activations`. `working` are the largest gradients on their way.
    """

    parameters: float
    gradients: float
    optimizer: float
    gathered: float
    activations: float
    merged: float
    working: float

    @property
    def total(self) -> float:
        """All."""
        weights = self.parameters + self.gradients + self.optimizer + self.gathered
        return weights + self.activations + self.working


@dataclass(frozen=True)
class Option:
    """A way to run it, what a rank then holds, and whether that fits; None where no memory was given."""

    micro_batch_size: int
    activation_checkpointing: bool
    holding: Holding
    fits: bool | None


@dataclass(frozen=True)
class Estimate:
    """What is known of a run before it starts.

    `options` begin with the run's own. `traffic` is what a rank receives in a step by parallelism, where the
    two that share experts do so among `group` ranks; `paper` is the same by number of GPUs, in groups of a
    node, with one micro-batch a step.
    """

    name: str
    gpus: int
    memory: float | None
    parameters_total: int
    parameters_active: int
    flops_per_token: float
    tokens_per_step: int
    flops_per_step: float
    peak_flops: float | None
    options: tuple[Option, ...]
    group: int
    traffic: dict[str, Traffic | None]
    paper: dict[int, dict[str, Traffic | None]]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, with the totals."""
        values = asdict(self)
        for entry, option in zip(values["options"], self.options, strict=True):
            entry["holding"]["total"] = option.holding.total
        return values


def estimate(run: Run, vocab_size: int, cluster: Cluster) -> Estimate:
    """The estimate of a run: of its mixture, and in bfloat16 unless the run asks for float32.

    InputError for a batch that cannot be shared out, and where nothing fits, naming a remedy.
    """
    if cluster.gpus < 1:
        raise InputError(f"--gpus {cluster.gpus}: give at least 1")
    if vocab_size < 1:
        raise InputError(f"--vocab-size {vocab_size}: give at least 1")
    run.check(processes=cluster.gpus)
    config = run.config(vocab_size, eos_token_id=0)
    options = tuple(option(run, config, cluster, *way) for way in ways(run, cluster.gpus))
    if cluster.memory is not None and not any(o.fits for o in options):
        raise InputError(f"{run.name} does not fit: {remedy(run, config, cluster)}")
    total, active = config.parameters()
    flops, tokens = config.flops_per_token(run.length), run.batch_size * run.length
    shard, group = mesh_of(run, cluster.gpus)
    if group == 1:  # the largest there could be
        group = next(n for n in range(min(NODE, shard), 0, -1) if shard % n == 0)
    work = work_of(run, options[0].micro_batch_size, cluster.gpus)
    one = Work(work.instances, work.length, 1, work.itemsize)
    return Estimate(
        name=run.name,
        gpus=cluster.gpus,
        memory=cluster.memory,
        parameters_total=total,
        parameters_active=active,
        flops_per_token=flops,
        tokens_per_step=tokens,
        flops_per_step=flops * tokens,
        peak_flops=run.watch.peak_flops or peak_flops(),
        options=options,
        group=group,
        traffic=traffic(config, work, cluster.gpus, shard, group),
        paper={gpus: traffic(config, one, gpus, gpus, NODE) for gpus in PAPER_GPUS},
    )


def parse_memory(text: str) -> float:
    """The bytes of 80, 80G or 80GiB (2³⁰ each) or of 80GB (10⁹ each); InputError for anything else."""
    number = text.rstrip("GiB")
    units = {"": float(GIB), "G": float(GIB), "GiB": float(GIB), "GB": 1e9}
    try:
        size = float(number) * units[text[len(number) :]]
    except (KeyError, ValueError):
        size = 0.0
    if not size > 0:
        raise InputError(f"--memory {text}: give it as 80GiB or 80GB")
    return size


def computed_in(run: Run) -> torch.dtype:
    """What a GPU computes in."""
    return torch.float32 if run.precision == "fp32" else torch.bfloat16


def mesh_of(run: Run, gpus: int) -> tuple[int, int]:
    """How many GPUs share one copy of the model, and how many of those the experts; one shares nothing."""
    return (1, 1) if gpus == 1 else (run.parallel.shard or gpus, run.parallel.experts)


def work_of(run: Run, micro_batch_size: int, gpus: int) -> Work:
    """What a rank does in a step."""
    share = run.batch_size // gpus
    return Work(micro_batch_size, run.length, -(-share // micro_batch_size), computed_in(run).itemsize)


def ways(run: Run, gpus: int) -> Iterator[tuple[int, bool]]:
    """Micro-batch sizes, each with and without activation checkpointing; the run's own come first."""
    share = run.batch_size // gpus
    size, own = min(run.micro_batch_size or share, share), run.speed.activation_checkpointing
    while size:
        yield from ((size, own), (size, not own))
        size //= 2


def option(
    run: Run, config: LoriiniConfig, cluster: Cluster, micro_batch_size: int, checkpointing: bool
) -> Option:
    """One way to run it."""
    holding = held(run, config, cluster, micro_batch_size, checkpointing)
    fits = None if cluster.memory is None else holding.total <= cluster.memory
    return Option(micro_batch_size, checkpointing, holding, fits)


def held(
    run: Run, config: LoriiniConfig, cluster: Cluster, micro_batch_size: int, checkpointing: bool
) -> Holding:
    """What each rank holds."""
    dtype, layers = computed_in(run), config.num_hidden_layers
    fused = run.speed.fused_loss != "off" and has_fused_loss()
    kept = footprint(config, micro_batch_size, run.length, dtype, fused)
    here, (shard, group) = parts(config), mesh_of(run, cluster.gpus)
    others = others_states(config, group, micro_batch_size, run.length) * dtype.itemsize
    kept_layers = 1 if checkpointing else layers
    master = FLOAT32 * here.total / shard
    if shard == 1:
        gathered = 0.0 if dtype == torch.float32 else here.total * dtype.itemsize
    else:
        layer = (here.experts / group + here.layers) / layers
        gathered = 2 * layer * dtype.itemsize + here.root * FLOAT32
    return Holding(
        parameters=master,
        gradients=master,
        optimizer=2 * master,
        gathered=gathered,
        activations=kept.activations(layers, checkpointing) + kept_layers * others,
        merged=kept_layers * kept.merged,
        working=kept.working(checkpointing),
    )


def others_states(config: LoriiniConfig, group: int, instances: int, length: int) -> float:
    """Numbers that a layer keeps of the other ranks' states where a group shares the experts.

    Merged experts keep the states once; combined ones, for every expert chosen, the states, the gated outputs
    and, for the gradient of the gates, the outputs.
    """
    once = config.routing.combination == "parameters" or config.num_experts == 1
    copies = 1 if once else (3 if config.routing.data_dependent else 2) * config.experts_per_token
    return copies * (group - 1) * instances * length * config.hidden_size


def traffic(
    config: LoriiniConfig, work: Work, gpus: int, shard: int, group: int
) -> dict[str, Traffic | None]:
    """What a rank receives in a step, by parallelism; None for one that the design does not admit.

    Expert parallelism works in smaller groups where there are fewer experts.
    """
    whole = gcd(group, config.num_experts)
    return {
        "fsdp": fsdp(config, work, gpus, shard),
        "expert_parallel": expert_parallel(config, work, gpus, shard, whole),
        "expert_wise": expert_wise(config, work, gpus, shard, group),
    }


def remedy(run: Run, config: LoriiniConfig, cluster: Cluster) -> str:
    """What makes a run fit which no option makes fit: twice the GPUs, four times, …, else more memory.

    Numbers of GPUs that the batch or the run's mesh does not divide are passed over.
    """
    least = held(run, config, cluster, 1, True).total
    needed = (
        f"each of {cluster.gpus} GPUs would hold {least / GIB:.1f} GiB (micro_batch_size 1, activation "
        f"checkpointing), but --memory is {(cluster.memory or 0) / GIB:.1f} GiB"
    )
    gpus = 2 * cluster.gpus
    while gpus <= min(LARGEST, run.batch_size) and run.batch_size % gpus == 0:
        more = Cluster(gpus, cluster.memory)
        shard, group = mesh_of(run, gpus)
        divides = gpus % shard == shard % group == 0
        if divides and held(run, config, more, 1, True).total <= (cluster.memory or 0):
            return f"{needed}; use --gpus {gpus}"
        gpus *= 2
    return f"{needed}, and more GPUs are not enough; use --memory {least / GIB:.1f}GiB, or a smaller model"
