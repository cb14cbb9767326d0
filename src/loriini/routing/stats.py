"""Statistics of routing: functions of a `Routing`, returned and never stored."""

import torch
from torch import Tensor

from loriini.routing.router import Routing


def without_padding(routing: Routing) -> tuple[Tensor, Tensor]:
    """Logits and gates (units, E) of the units that hold tokens."""
    if routing.valid is None:
        return routing.logits, routing.gates
    return routing.logits[routing.valid], routing.gates[routing.valid]


def units(routing: Routing) -> Tensor:
    """Number of units that hold tokens; scalar."""
    logits = routing.logits
    if routing.valid is None:
        return logits.new_full((), len(logits))  # filled on the device, where `new_tensor` would wait for it
    return routing.valid.sum().to(logits)


def choices(routing: Routing) -> Tensor:
    """Number of units that chose each expert (E,)."""
    _, gates = without_padding(routing)
    return (gates > 0).float().sum(0)


def shares(amounts_E: Tensor) -> Tensor:
    """Amounts (…, E) as shares of their sum; zeros stay."""
    return amounts_E / amounts_E.sum(-1, keepdim=True).clamp(min=torch.finfo(amounts_E.dtype).tiny)


def entropy(weights_E: Tensor) -> Tensor:
    """-Σ w log w over experts, in nats (…): log E for even shares, 0 when one has all."""
    return -torch.special.xlogy(weights_E, weights_E).sum(-1)


def mean_gates(routing: Routing) -> Tensor:
    """Mean gate of each expert over the units that hold tokens (E,)."""
    _, gates = without_padding(routing)
    return gates.mean(0)


def gate_entropy(routing: Routing) -> Tensor:
    """Mean entropy, in nats, of the units' gates as shares of their sum; scalar.

    0 if every unit gives all its weight, of any size, to one expert; log E if all gates are equal.
    """
    _, gates = without_padding(routing)
    return entropy(shares(gates)).mean()


def mean_logits(routing: Routing) -> Tensor:
    """Mean logit of each expert (E,): its mean activation norm where experts score themselves."""
    logits, _ = without_padding(routing)
    return logits.mean(0)


def active_experts(routing: Routing) -> Tensor:
    """Which experts have a weight over 2/E for at least one unit (E,), bool (Lory appendix G.1)."""
    _, gates = without_padding(routing)
    return (gates > 2 / gates.shape[-1]).any(0)
