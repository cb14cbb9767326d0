"""Statistics of routing: functions of a `Routing`, returned and never stored.

With the `Routing` of several layers that `stack_layers` makes, layers are the first axis of every result but
`count_units`. No statistic waits for the device.

Axes: N units, E experts, X values of a unit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from loriini.routing.router import Routing


def stack_layers(routings: Sequence[Routing]) -> Routing:
    """Several layers' routings of the same units as one (layers, N, E), on the first one's device."""
    first = routings[0]
    device = first.gates.device
    logits = torch.stack([routing.logits.to(device) for routing in routings])
    gates = torch.stack([routing.gates.to(device) for routing in routings])
    return Routing(logits, gates, first.unit_shape, first.valid)


def sum_over_units(values_NX: Tensor, routing: Routing) -> Tensor:
    """The sum of values (…, N, X) over the units that hold tokens; (…, X)."""
    if routing.valid is not None:  # by a mask: indexing would wait for the number of units
        values_NX = values_NX.masked_fill(~routing.valid[:, None], 0)
    return values_NX.sum(-2)


def mean_over_units(values_NX: Tensor, routing: Routing) -> Tensor:
    """The mean of values (…, N, X) over the units that hold tokens, 0 if none does; (…, X)."""
    return sum_over_units(values_NX, routing) / count_units(routing).clamp(min=1)


def count_units(routing: Routing) -> Tensor:
    """Number of units that hold tokens; scalar."""
    logits = routing.logits
    if routing.valid is None:
        return logits.new_full((), logits.shape[-2])  # filled on the device; `new_tensor` would wait
    return routing.valid.sum().to(logits)


def choices(routing: Routing) -> Tensor:
    """Number of units that chose each expert (E,)."""
    return sum_over_units((routing.gates > 0).float(), routing)


def shares(amounts_E: Tensor) -> Tensor:
    """Amounts (…, E) divided by their sum; all zeros stay zeros."""
    return amounts_E / amounts_E.sum(-1, keepdim=True).clamp(min=torch.finfo(amounts_E.dtype).tiny)


def entropy(weights_E: Tensor) -> Tensor:
    """-Σ w log w over experts, in nats (…): log E for even shares, 0 when one has all."""
    return -torch.special.xlogy(weights_E, weights_E).sum(-1)


def mean_gates(routing: Routing) -> Tensor:
    """Mean gate of each expert over the units that hold tokens (E,)."""
    return mean_over_units(routing.gates, routing)


def gate_entropy(routing: Routing) -> Tensor:
    """Mean entropy, in nats, of each unit's gates divided by their sum; scalar.

    0 if every unit has one gate above 0, of any size; log E if all gates are equal.
    """
    return mean_over_units(entropy(shares(routing.gates))[..., None], routing).squeeze(-1)


def active_experts(routing: Routing) -> Tensor:
    """Which experts have a gate above 2/E for at least one unit (E,), bool (Lory appendix G.1)."""
    return sum_over_units((routing.gates > 2 / routing.gates.shape[-1]).float(), routing) > 0
