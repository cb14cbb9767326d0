"""What travels between processes in a step, on paper: FSDP, expert parallelism, expert-wise parallelism.

All counts are bytes that one rank receives; rings send as many. Lory section 6 compares the three: FSDP moves
every expert's parameters to every rank; expert parallelism moves tokens to the experts that they chose, which
needs a choice; expert-wise parallelism cuts the width of all experts over a group of ranks and moves the
group's states instead, whose size does not depend on the number of experts.
"""

from dataclasses import dataclass

from loriini.model import LoriiniConfig
from loriini.model.configuration import BLOCK_SIZES

FLOAT32 = 4
"""Bytes of master weights, of gradients that are reduced, and of gates."""


@dataclass(frozen=True)
class Work:
    """A rank's step: `micro_batches` of `instances` of `length` tokens, at `itemsize` bytes a number."""

    instances: int
    length: int
    micro_batches: int
    itemsize: int

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.instances * self.length


@dataclass(frozen=True)
class Parts:
    """A model's parameters by where they live: in experts, elsewhere in the layers, outside the layers."""

    experts: int
    layers: int
    root: int

    @property
    def total(self) -> int:
        """All."""
        return self.experts + self.layers + self.root


@dataclass(frozen=True)
class Traffic:
    """Bytes that a rank receives in a step."""

    parameters: float
    gradients: float
    activations: float

    @property
    def total(self) -> float:
        """All."""
        return self.parameters + self.gradients + self.activations


@dataclass(frozen=True)
class Exchange:
    """Bytes that each process sends, and receives, in one forward and backward pass of a micro-batch."""

    all_gather: int
    reduce_scatter: int


def parts(config: LoriiniConfig) -> Parts:
    """Where a model's parameters live."""
    sizes = BLOCK_SIZES[config.block](config)
    embeddings = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    root = embeddings + sizes.positions + sizes.norm
    experts = config.num_hidden_layers * config.num_experts * sizes.expert
    return Parts(experts, config.parameters()[0] - experts - root, root)


def fsdp(config: LoriiniConfig, work: Work, ranks: int, shard: int) -> Traffic:
    """Everything sharded over `shard` ranks, in ranks / shard replicas.

    A layer is gathered for its forward and again for its backward pass, the rest once; gradients are
    reduced and scattered in float32, then averaged between replicas.
    """
    here = parts(config)
    return _sharded(here.experts + here.layers, here.root, work, ranks, shard)


def expert_wise(config: LoriiniConfig, work: Work, ranks: int, shard: int, group: int) -> Traffic:
    """Groups of so many ranks share the width of all experts, of which each rank holds a slice.

    A layer gathers the group's states and gates and scatters the sum of its outputs; the backward pass does
    the same turned round.
    """
    weights = _with_sliced_experts(config, work, ranks, shard, group)
    moved = expert_wise_bytes(config, group, work.instances, work.length, work.itemsize)
    activations = work.micro_batches * (moved.all_gather + moved.reduce_scatter)
    return Traffic(weights.parameters, weights.gradients, activations)


def expert_wise_bytes(
    config: LoriiniConfig, experts: int, instances: int, length: int, state_bytes: int = 2
) -> Exchange:
    """What expert-wise parallelism over `experts` processes sends (Lory section 6).

    Each process brings `instances` of `length` tokens. In every layer the states, S bytes of each process,
    are gathered and the outputs scattered, and their gradients the other way round, each (G - 1)·S; the
    gates go with the states, and their gradients with the states'. Nothing depends on the experts' width.
    """
    routing, others, layers = config.routing, experts - 1, config.num_hidden_layers
    merged = routing.combination == "parameters"
    span = routing.segment_length if routing.segmented else length
    units_per_instance = -(-length // span) if merged else length
    tokens = instances * (units_per_instance * span if merged else length)
    states = tokens * config.hidden_size * state_bytes
    gates = instances * units_per_instance * config.num_experts * FLOAT32 if config.num_experts > 1 else 0
    learnt = gates if routing.data_dependent else 0
    return Exchange(
        all_gather=layers * others * (2 * states + gates),
        reduce_scatter=layers * others * (2 * states + learnt),
    )


def expert_parallel(config: LoriiniConfig, work: Work, ranks: int, shard: int, group: int) -> Traffic | None:
    """Each rank of a group holds whole experts, and tokens travel to those they chose and back.

    With an even load. None where every token needs every expert, as of merged ones, and where a group cannot
    share them evenly.
    """
    chosen = config.num_experts > 1 and config.routing.combination == "outputs"
    if not chosen or config.num_experts % group:
        return None
    weights = _with_sliced_experts(config, work, ranks, shard, group)
    states = work.tokens * config.experts_per_token * config.hidden_size * work.itemsize
    moved = 4 * states * (group - 1) / group
    return Traffic(
        weights.parameters, weights.gradients, work.micro_batches * config.num_hidden_layers * moved
    )


def _with_sliced_experts(config: LoriiniConfig, work: Work, ranks: int, shard: int, group: int) -> Traffic:
    """Of parameters and gradients alone, where a group shares the experts."""
    here = parts(config)
    experts = _sharded(here.experts // group, 0, work, ranks // group, shard // group)
    rest = _sharded(here.layers, here.root, work, ranks, shard)
    return Traffic(experts.parameters + rest.parameters, experts.gradients + rest.gradients, 0)


def _sharded(layers: int, root: int, work: Work, ranks: int, shard: int) -> Traffic:
    """FSDP of parameters in layers and outside them."""
    others, replicas = (shard - 1) / shard, ranks // shard
    gathered = others * (2 * layers * work.itemsize + root * FLOAT32)
    between = 2 * (replicas - 1) / replicas / shard
    reduced = (others + between) * (layers + root) * FLOAT32
    return Traffic(work.micro_batches * gathered, work.micro_batches * reduced, 0)
