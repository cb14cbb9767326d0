"""How much processes send each other: formulas, which a test compares with what is sent."""

from dataclasses import dataclass

from loriini.model import LoriiniConfig

GATE_BYTES = 4
"""Routing is float32 whatever the states are."""


@dataclass(frozen=True)
class Exchange:
    """Bytes that each process sends, and receives, in one forward and backward pass of a micro-batch."""

    all_gather: int
    reduce_scatter: int


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
    gates = instances * units_per_instance * config.num_experts * GATE_BYTES if config.num_experts > 1 else 0
    learnt = gates if routing.data_dependent else 0
    return Exchange(
        all_gather=layers * others * (2 * states + gates),
        reduce_scatter=layers * others * (2 * states + learnt),
    )
