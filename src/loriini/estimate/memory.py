"""The memory that a rank needs, by kind: parameters, gradients, moments, activations and more."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache

import torch

from loriini.common.errors import InputError
from loriini.estimate.activations import ActivationBytes, UnshardedGradients, count_activations
from loriini.estimate.muon import FLOAT32, matrix_numbers, muon_transient_bytes
from loriini.model import LoriiniConfig
from loriini.train.config import AUTO, TrainConfig

GIB = 1 << 30
MOST_MEMORY = float(1 << 60)
"""Bytes above which no rank's memory is estimated."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes on each rank at the peak of a step."""

    parameters: float
    gradients: float
    optimizer: float
    gathered: float
    """Weights that layers compute with: two gathered layers and what is outside the layers, or on one GPU
    the copies that autocast makes."""
    activations: float
    merged: float
    """The part of `activations` that is merged experts' weights."""
    transient: float
    """Temporary tensors at the peak: the loss's, or gradients (with FSDP also those being reduced), or what
    Muon's step needs beyond `activations` and `gathered`."""

    @property
    def total(self) -> float:
        """All bytes."""
        weights = self.parameters + self.gradients + self.optimizer + self.gathered
        return weights + self.activations + self.transient


def least_memory(run: TrainConfig, config: LoriiniConfig, ranks: int) -> float:
    """Lower bound of each rank's bytes in closed form, which serves even sizes that no machine can hold.

    It counts weights, gradients and moments in float32, the batch, and a micro-batch's states between layers.
    """
    share = -(-run.batch_size // ranks)
    micro_batch = (1 if run.micro_batch_size == AUTO else run.instances_at_once(share)) * run.length
    kept = 1 if run.speed.activation_checkpointing else config.num_hidden_layers
    between_layers = 2 * micro_batch * config.hidden_size * kept
    return weights_to_moments(run, config, ranks) + 8 * share * (run.length + 1) + between_layers


def weights_to_moments(run: TrainConfig, config: LoriiniConfig, ranks: int) -> float:
    """Lower bound of the bytes of weights, gradients and moments in each of `ranks`."""
    held = 3 if run.optimizer.name == "muon" else 4
    return held * FLOAT32 * config.parameters()[0] / mesh_sizes(run, ranks)[0]


def check_memory(run: TrainConfig, config: LoriiniConfig, ranks: int, memory: float, where: str) -> None:
    """InputError if each rank needs more than `memory` bytes even by the lower bound `least_memory`."""
    least = least_memory(run, config, ranks)
    if least > memory:
        states = weights_to_moments(run, config, ranks)
        remedy = (
            "take fewer experts, a smaller model, or more processes that share it"
            if states > memory
            else "lower --batch_size, --length or the model's sizes"
        )
        raise InputError(
            f"{run.name} needs at least {least / GIB:,.1f} GiB, {states / GIB:,.1f} of them for weights, "
            f"gradients and the optimizer's moments; {where} has {memory / GIB:,.1f}: {remedy}"
        )


def parse_memory(text: str) -> float:
    """The bytes of 80, 80G or 80GiB (2³⁰ each) or of 80GB (10⁹ each); InputError for anything else."""
    number = text.rstrip("GiB")
    units = {"": float(GIB), "G": float(GIB), "GiB": float(GIB), "GB": 1e9}
    try:
        size = float(number) * units[text[len(number) :]]
    except (KeyError, ValueError):
        size = 0.0
    if not 0 < size < MOST_MEMORY:
        raise InputError(f"--memory {text}: give it as 80GiB or 80GB")
    return size


def compute_dtype(run: TrainConfig) -> torch.dtype:
    """The dtype of a run's computation on a GPU."""
    return torch.float32 if run.precision == "fp32" else torch.bfloat16


def mesh_sizes(run: TrainConfig, ranks: int) -> tuple[int, int]:
    """How many ranks share one copy of the model, and how many of those share the experts of a layer."""
    return (1, 1) if ranks == 1 else (run.parallel.shard or ranks, run.parallel.experts)


MemoryOf = Callable[[int, bool, bool], RankMemory]
"""From a micro-batch's instances, `recompute_merge` and activation checkpointing to a rank's memory."""


def memory_by_option(run: TrainConfig, config: LoriiniConfig, ranks: int) -> MemoryOf:
    """The `MemoryOf` of a run on `ranks`; it counts the activations of each micro-batch only once."""

    @cache
    def counted(instances: int, recompute: bool) -> tuple[LoriiniConfig, ActivationBytes]:
        merging = copy(config)
        merging.recompute_merge = recompute
        return merging, count_activations(merging, instances, run.length, compute_dtype(run))

    def memory(instances: int, recompute: bool, checkpointing: bool) -> RankMemory:
        merging, activations = counted(instances, recompute)
        return rank_memory(run, merging, ranks, instances, checkpointing, activations)

    return memory


def rank_memory(
    run: TrainConfig,
    config: LoriiniConfig,
    ranks: int,
    micro_batch_size: int,
    checkpointing: bool,
    activations: ActivationBytes,
) -> RankMemory:
    """The memory of each of `ranks`; `activations` are those of its micro-batch."""
    itemsize, layers = compute_dtype(run).itemsize, config.num_hidden_layers
    sizes, (shard, group) = config.sizes(), mesh_sizes(run, ranks)
    share_width = run.parallel.share_experts == "width"
    others = others_states(config, group, micro_batch_size, run.length) * itemsize if share_width else 0
    kept_layers = 1 if checkpointing else layers
    low = layers * config.num_experts * (config.low_rank or 0) * config.hidden_size
    experts = (sizes.experts - low) / group + low  # a rank's; each holds all of AoE's W_down
    master = FLOAT32 * (group * experts + sizes.layers + sizes.root) / shard
    if ranks == 1:
        gathered = 0.0 if itemsize == FLOAT32 else cast_parameters(config, kept_layers) * itemsize
        unsharded = None
    else:
        layer, root = (experts + sizes.layers) / layers, sizes.root * FLOAT32
        gathered = min(2, layers) * layer * itemsize + root
        unsharded = UnshardedGradients(layer * itemsize, layer * FLOAT32, root)
    peak = activations.peak(layers, checkpointing, unsharded)
    kept, transient = peak.kept + kept_layers * others, peak.transient
    moments = 2 * master
    if run.optimizer.name == "muon":
        moments -= FLOAT32 * matrix_numbers(config) / shard
        of_muon = muon_transient_bytes(config, shard, group, run.parallel.share_experts)
        transient = max(transient, of_muon - kept - gathered)  # these are freed before its step
    whole = experts + sizes.layers + sizes.root
    accumulated = ranks > 1 and run.parallel.reduce_once and micro_batch_size < run.batch_size // ranks
    return RankMemory(
        parameters=master,
        gradients=master + (FLOAT32 * whole if accumulated else 0),
        optimizer=moments,
        gathered=gathered,
        activations=kept,
        merged=peak.merged,
        transient=transient,
    )


def cast_parameters(config: LoriiniConfig, layers: int) -> float:
    """Parameters with a copy in the dtype of computation: those of `layers` layers, all experts, the head.

    Experts are cast once a step, unless the backward pass merges them again: then it also casts them again.
    """
    sizes = config.sizes()
    again = config.recompute_merge and config.merges
    of_layers = sizes.layers * layers / config.num_hidden_layers
    return of_layers + (0 if again else sizes.experts) + config.vocab_size * config.hidden_size


def others_states(config: LoriiniConfig, group: int, instances: int, length: int) -> float:
    """How many numbers of other ranks' states a layer keeps where a group shares the experts' width.

    Merged experts keep the states once. Combined ones keep, for every chosen expert, the states and, for the
    gradient of the gates, the outputs. With an even load, ranks that hold whole experts keep no more than a
    rank that holds all experts.
    """
    once = config.merges or not config.is_mixture
    copies = 1 if once else (2 if config.routing.data_dependent else 1) * config.experts_per_token
    return copies * (group - 1) * instances * length * config.hidden_size
