"""Auxiliary losses and statistics: functions of a `Routing`, returned and never stored."""

from collections.abc import Callable

import torch
from torch import Tensor

from loriini.routing.design import RoutingConfig
from loriini.routing.router import Routing

Average = Callable[[Tensor], Tensor]
"""Takes a statistic of this process's units to its mean over all processes."""


def _counted(routing: Routing) -> tuple[Tensor, Tensor]:
    """Logits and gates (units, E) of the units that hold tokens."""
    if routing.valid is None:
        return routing.logits, routing.gates
    return routing.logits[routing.valid], routing.gates[routing.valid]


def load_balance(routing: Routing, average: Average | None = None) -> Tensor:
    """E · Σ_i f_i P_i (AoE equation 2; Switch equation 4); scalar.

    f_i is the share of units that choose expert i, so that Σ f_i = k and the loss is k when balanced, as in
    transformers; P_i is the mean softmax of the logits. With f_i averaged over processes, the mean of their
    losses is the loss of all units together.
    """
    logits, gates = _counted(routing)
    f = (gates > 0).float().mean(0)
    f = f if average is None else average(f)
    return logits.shape[-1] * (f * logits.softmax(-1).mean(0)).sum()


def confidence_entropy(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean entropy, in nats, of the softmax of the logits (AoE section 4.3); scalar."""
    logits, _ = _counted(routing)
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1).mean()


def router_z(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean squared logsumexp of the logits (ST-MoE equation 5); scalar."""
    logits, _ = _counted(routing)
    return logits.logsumexp(-1).square().mean()


def gate_l1(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean over units of Σ_i |g_i|, which makes ReLU gates sparse; scalar.

    ReMoE adapts its weight towards a target sparsity; here the weight is constant.
    """
    _, gates = _counted(routing)
    return gates.abs().sum(-1).mean()


LOSSES: dict[str, Callable[[Routing, Average | None], Tensor]] = {
    "load_balance": load_balance,
    "confidence_entropy": confidence_entropy,
    "router_z": router_z,
    "gate_l1": gate_l1,
}
"""Each is weighted by the field of `RoutingConfig` of the same name."""


def auxiliary_loss(
    routings: tuple[Routing, ...], config: RoutingConfig, average: Average | None = None
) -> Tensor | None:
    """The weighted auxiliary losses, each computed per layer and averaged over layers; None without any.

    `average` is for losses that are no means over units, and so need statistics of all processes.
    """
    weighted = [
        getattr(config, name) * torch.stack([loss(routing, average) for routing in routings]).mean()
        for name, loss in LOSSES.items()
        if getattr(config, name) != 0
    ]
    return torch.stack(weighted).sum() if weighted else None


def units(routing: Routing) -> Tensor:
    """Number of units that hold tokens; scalar."""
    logits = routing.logits
    return logits.new_tensor(len(logits)) if routing.valid is None else routing.valid.sum().to(logits)


def choices(routing: Routing) -> Tensor:
    """Number of units that chose each expert (E,)."""
    _, gates = _counted(routing)
    return (gates > 0).float().sum(0)


def shares(amounts_E: Tensor) -> Tensor:
    """Amounts (…, E) as shares of their sum; zeros stay."""
    return amounts_E / amounts_E.sum(-1, keepdim=True).clamp(min=torch.finfo(amounts_E.dtype).tiny)


def entropy(weights_E: Tensor) -> Tensor:
    """-Σ w log w over experts, in nats (…): log E for even shares, 0 when one has all."""
    return -torch.special.xlogy(weights_E, weights_E).sum(-1)


def mean_gates(routing: Routing) -> Tensor:
    """Mean gate of each expert over the units that hold tokens (E,)."""
    _, gates = _counted(routing)
    return gates.mean(0)


def gate_entropy(routing: Routing) -> Tensor:
    """Mean entropy, in nats, of the units' gates: log E when all weigh the same; scalar."""
    _, gates = _counted(routing)
    return entropy(gates).mean()


def mean_logits(routing: Routing) -> Tensor:
    """Mean logit of each expert (E,): its mean activation norm where experts score themselves."""
    logits, _ = _counted(routing)
    return logits.mean(0)


def active_experts(routing: Routing) -> Tensor:
    """Which experts have a weight over 2/E for at least one unit (E,), bool (Lory appendix G.1)."""
    _, gates = _counted(routing)
    return (gates > 2 / gates.shape[-1]).any(0)
