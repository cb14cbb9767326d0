"""Auxiliary losses: functions of a `Routing`, returned and never stored.

Like statistics they are scalars, or (layers,) for the `Routing` of several layers.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from loriini.routing.design import RoutingConfig
from loriini.routing.router import Routing
from loriini.routing.stats import choices, count_units, mean_over_units, stack_layers

Average = Callable[[Tensor], Tensor]
"""Averages a statistic over processes.

Weighting each process's loss by its units then gives the loss of all units.
"""


def load_balance(routing: Routing, average: Average | None = None) -> Tensor:
    """E · Σ_i f_i P_i (AoE equation 2; Switch equation 4); scalar.

    f_i is the share of units that choose expert i, in all processes if `average` is given; P_i is the mean
    softmax of this process's logits. As in transformers, Σ f_i = k, so the loss is k when balanced.
    """
    chosen = choices(routing)
    counted = torch.cat([chosen, count_units(routing).expand(*chosen.shape[:-1], 1)], dim=-1)
    counted = counted if average is None else average(counted)
    f = counted[..., :-1] / counted[..., -1:].clamp(min=torch.finfo(counted.dtype).tiny)
    P = mean_over_units(routing.logits.softmax(-1), routing)
    return P.shape[-1] * (f * P).sum(-1)


def confidence_entropy(routing: Routing) -> Tensor:
    """Mean entropy, in nats, of the softmax of the logits (AoE equation 8); scalar."""
    log_p = routing.logits.log_softmax(-1)
    return -mean_over_units(log_p.exp() * log_p, routing).sum(-1)


def router_z(routing: Routing) -> Tensor:
    """Mean squared logsumexp of the logits (ST-MoE equation 5); scalar."""
    squares = routing.logits.logsumexp(-1, keepdim=True).square()
    return mean_over_units(squares, routing).squeeze(-1)


def gate_l1(routing: Routing) -> Tensor:
    """Mean over units of Σ_i |g_i|, which makes ReLU gates sparse; scalar.

    ReMoE adapts its weight towards a target sparsity; here the weight is constant.
    """
    return mean_over_units(routing.gates.abs(), routing).sum(-1)


Loss = Callable[[Routing], Tensor]
LOSSES: dict[str, Loss] = {
    "load_balance": load_balance,
    "confidence_entropy": confidence_entropy,
    "router_z": router_z,
    "gate_l1": gate_l1,
}
"""By the name of the weight: a field of `RoutingConfig`, or an option for an extension's loss."""


def auxiliary_loss(
    routings: tuple[Routing, ...], design: RoutingConfig, average: Average | None = None
) -> Tensor | None:
    """The weighted sum of the auxiliary losses, each averaged over layers; None without any.

    `average` is for `load_balance`, the one loss that is not a mean over units.
    """
    weights = design.loss_weights
    if not weights:
        return None
    layers = stack_layers(routings)
    losses: dict[str, Loss] = {**LOSSES, "load_balance": partial(load_balance, average=average)}
    weighted = [weight * losses[name](layers).mean() for name, weight in weights.items()]
    return torch.stack(weighted).sum()
