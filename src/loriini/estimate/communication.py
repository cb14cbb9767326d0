"""Bytes that ranks receive in a step, by formula: FSDP, expert parallelism, expert-wise parallelism.

Counts are bytes that one rank receives; with ring algorithms it sends as many. Lory section 6 compares the
three. FSDP sends every expert's parameters to every rank. Expert parallelism sends tokens to the experts that
they chose, which needs a choice. Expert-wise parallelism shards the width of all experts over a group of
ranks and sends the group's states, whose size does not depend on the number of experts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from loriini.model import LoriiniConfig
from loriini.model.configuration import BLOCK_SIZES
from loriini.model.decoder import LoriiniDecoderLayer
from loriini.parallel.mesh import ShareExperts
from loriini.parallel.sharding import divided_dim
from loriini.routing.selection import fixed_counts
from loriini.train.optimizer import hidden_matrices

FLOAT32 = 4
"""Bytes of master weights, reduced gradients, and gates."""
BFLOAT16 = 2
"""Bytes of a number that Muon gathers on a GPU."""
INT32 = 4
"""Bytes of a number of pairs."""


@dataclass(frozen=True)
class RankStep:
    """A rank's share of a step."""

    instances: int
    """Instances of a micro-batch."""
    length: int
    """Tokens of an instance."""
    micro_batches: int
    itemsize: int
    """Bytes of a number in the dtype of computation."""


@dataclass(frozen=True)
class ParameterCounts:
    """A model's parameters: in experts, elsewhere in the layers, and outside the layers."""

    experts: int
    layers: int
    root: int
    replicated: int = 0
    """The part of `experts` that every rank of a group that shares them holds: AoE's W_down."""

    @property
    def total(self) -> int:
        """All parameters."""
        return self.experts + self.layers + self.root

    def experts_in(self, group: int) -> float:
        """The experts that each rank of a group of `group` holds or gathers."""
        return (self.experts - self.replicated) / group + self.replicated


@dataclass(frozen=True)
class Communication:
    """Bytes that a rank receives in a step, by what they are."""

    parameters: float
    gradients: float
    activations: float

    @property
    def total(self) -> float:
        """All bytes."""
        return self.parameters + self.gradients + self.activations


@dataclass(frozen=True)
class GroupBytes:
    """Bytes that a process sends within its expert group in one forward and backward pass."""

    all_gather: int
    reduce_scatter: int


def count_parameters(config: LoriiniConfig) -> ParameterCounts:
    """A model's parameters by where they are."""
    sizes = BLOCK_SIZES[config.block](config)
    root = config.parameters_outside_layers()
    experts = config.num_hidden_layers * config.num_experts * sizes.expert
    low = config.num_hidden_layers * config.num_experts * (config.low_rank or 0) * config.hidden_size
    return ParameterCounts(experts, config.parameters()[0] - experts - root, root, replicated=low)


def fsdp(config: LoriiniConfig, step: RankStep, ranks: int) -> Communication:
    """FSDP of all parameters over `ranks`.

    A layer is gathered for its forward and again for its backward pass, the rest once. Gradients are
    reduced and scattered in float32.
    """
    counts = count_parameters(config)
    return _fsdp(counts.experts + counts.layers, counts.root, step, ranks)


def expert_wise(config: LoriiniConfig, step: RankStep, ranks: int, group: int) -> Communication:
    """Groups of `group` ranks share the width of all experts; FSDP shards the slices, and the rest.

    A layer gathers the group's states and gates and scatters the sum of its outputs; the backward pass does
    the reverse.
    """
    weights = _sliced_experts(config, step, ranks, group)
    sent = expert_wise_bytes(config, group, step)
    activations = step.micro_batches * (sent.all_gather + sent.reduce_scatter)
    return Communication(weights.parameters, weights.gradients, activations)


def expert_wise_bytes(config: LoriiniConfig, group: int, step: RankStep) -> GroupBytes:
    """What a process sends in a group of `group` processes with expert-wise parallelism (Lory section 6).

    Of one micro-batch. In every layer the states, S bytes per process, are gathered and the outputs
    scattered, and their gradients the other way round, each (G - 1)·S. Gates are gathered with the states,
    and their gradients scattered with the states'. Nothing depends on the experts' width.
    """
    others, layers = group - 1, config.num_hidden_layers
    units, span = count_units(config, step.instances, step.length)
    states = units * span * config.hidden_size * step.itemsize
    gates = units * config.num_experts * FLOAT32 if config.is_mixture else 0
    gate_gradients = gates if config.routing.data_dependent else 0
    return GroupBytes(
        all_gather=layers * others * (2 * states + gates),
        reduce_scatter=layers * others * (2 * states + gate_gradients),
    )


def count_units(config: LoriiniConfig, instances: int, length: int) -> tuple[int, int]:
    """Routing units of `instances`, and the tokens of each; the last unit of an instance is filled up."""
    span = config.design.unit_length(length)
    return instances * -(-length // span), span


def expert_parallel(config: LoriiniConfig, step: RankStep, ranks: int, group: int) -> Communication | None:
    """Each rank of a group holds whole experts; tokens are sent to those they chose, and back.

    None where every token needs every expert, as with merged ones, and where a group cannot share the experts
    evenly.
    """
    if not config.is_mixture or config.merges or config.num_experts % group:
        return None
    weights = _sliced_experts(config, step, ranks, group)
    sent = expert_parallel_bytes(config, group, step)
    return Communication(weights.parameters, weights.gradients, step.micro_batches * sent)


def expert_parallel_bytes(config: LoriiniConfig, group: int, step: RankStep) -> float:
    """What a process sends in a group of `group` processes that hold whole experts, in one pass and back.

    Of one micro-batch. In every layer the states of each pair of a unit and an expert it selected travel to
    the expert, and its outputs back; their gradients go the other way round. With an even load (G - 1)/G of
    them leave the process. Where a design does not fix each expert's number of pairs, the numbers are
    exchanged first. With top_p and positive all experts are counted.
    """
    units, span = count_units(config, step.instances, step.length)
    experts = config.num_experts
    fixed = fixed_counts(config.routing, units, experts, training=True, padded=False).per_expert
    pairs = units * config.experts_per_token if fixed is None else experts * fixed
    numbers = experts * INT32 if fixed is None else 0
    states = pairs * span * config.hidden_size * step.itemsize
    return config.num_hidden_layers * (4 * states + numbers) * (group - 1) / group


def matrix_numbers(config: LoriiniConfig) -> int:
    """The numbers in the matrices that Muon steps."""
    return config.num_hidden_layers * sum(shape.numel() for shape, _ in _hidden_shapes(config))


def muon_bytes(config: LoriiniConfig, ranks: int, group: int, share_experts: ShareExperts) -> float:
    """What a process receives in a step on GPUs so that it has whole matrices for Muon.

    `ranks` processes share a copy of the model, `group` of them its experts. Matrices split over n processes
    are gathered in bfloat16, each process receiving n - 1 parts; whole matrices of a stack are not sent.
    """
    shares = _matrix_shares(config, ranks, group, share_experts)
    return BFLOAT16 * config.num_hidden_layers * sum(own * (split - 1) for own, split in shares)


def muon_transient_bytes(config: LoriiniConfig, ranks: int, group: int, share_experts: ShareExperts) -> float:
    """What Muon needs on a GPU beside its moment while it makes the largest stack of matrices orthogonal.

    In bfloat16 the mean and an iterate, and another or up to six squares of matrices that are twice as wide
    as high: at most five numbers for each of its numbers, which are whole matrices.
    """
    shares = _matrix_shares(config, ranks, group, share_experts)
    return 5 * BFLOAT16 * max(own * split for own, split in shares)


def _matrix_shares(
    config: LoriiniConfig, ranks: int, group: int, share_experts: ShareExperts
) -> Iterator[tuple[float, int]]:
    """Of each stack of matrices in a layer a process's numbers, and over how many its matrices are split."""
    for shape, width_dim in _hidden_shapes(config):
        dims = (
            {0: ranks} if width_dim is None else _expert_dims(shape, width_dim, ranks, group, share_experts)
        )
        yield shape.numel() / ranks, math.prod(n for dim, n in dims.items() if dim > 0 or len(shape) == 2)


def _hidden_shapes(config: LoriiniConfig) -> list[tuple[torch.Size, int | None]]:
    """Shapes of the matrices that Muon steps in a layer; the dimension of the width of routed experts."""
    with torch.device("meta"):
        layer = LoriiniDecoderLayer(config, layer_idx=0)
    experts = layer.mlp.experts
    width = {parameter: experts.width_dims[name] for name, parameter in experts.named_parameters()}
    return [(parameter.shape, width.get(parameter)) for parameter in hidden_matrices(layer)]


def _expert_dims(
    shape: torch.Size, width_dim: int, ranks: int, group: int, share_experts: ShareExperts
) -> dict[int, int]:
    """The dimensions along which experts are split, and over how many processes."""
    whole = share_experts == "whole"
    group = 1 if whole and shape[0] == 1 else group
    of_group = {(0 if whole else width_dim): group} if group > 1 else {}
    dim = divided_dim(shape, ranks // group, of_group) or 0
    return of_group | {dim: of_group.get(dim, 1) * (ranks // group)}


def _sliced_experts(config: LoriiniConfig, step: RankStep, ranks: int, group: int) -> Communication:
    """Parameters and gradients alone, where a group shares the experts.

    Gradients of replicated parameters are first summed over the group, in the dtype that they have.
    """
    counts = count_parameters(config)
    calls = 2 if config.scored_by_norm else 1  # the backward pass of each gathers
    experts = _fsdp(counts.experts_in(group), 0, step, ranks // group, calls + 1)
    rest = _fsdp(counts.layers, counts.root, step, ranks)
    summed = step.micro_batches * 2 * (group - 1) / group * counts.replicated * step.itemsize
    return Communication(experts.parameters + rest.parameters, experts.gradients + rest.gradients + summed, 0)


def _fsdp(layers: float, root: int, step: RankStep, ranks: int, gathers: int = 2) -> Communication:
    """FSDP of `layers` parameters, gathered `gathers` times a micro-batch, and `root` outside the layers."""
    others = (ranks - 1) / ranks
    gathered = others * (gathers * layers * step.itemsize + root * FLOAT32)
    reduced = others * (layers + root) * FLOAT32
    return Communication(step.micro_batches * gathered, step.micro_batches * reduced, 0)
