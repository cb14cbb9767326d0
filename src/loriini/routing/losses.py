"""Auxiliary losses: functions of a `Routing`, returned and never stored."""

from collections.abc import Callable

import torch
from torch import Tensor

from loriini.routing.design import RoutingConfig
from loriini.routing.router import Routing
from loriini.routing.stats import without_padding

Average = Callable[[Tensor], Tensor]
"""Takes a statistic of this process's units to its mean over all processes.

Then the mean of the processes' losses, each weighted by its units, is the loss of all units together.
"""


def _mean(values: Tensor) -> Tensor:
    """The mean over units, the first axis; 0 without any."""
    return values.sum(0) / max(1, len(values))


def load_balance(routing: Routing, average: Average | None = None) -> Tensor:
    """E · Σ_i f_i P_i (AoE equation 2; Switch equation 4); scalar.

    f_i is the share of units that choose expert i, so that Σ f_i = k and the loss is k when balanced, as in
    transformers, and with `average` of the units of all processes; P_i is the mean softmax of the logits.
    """
    logits, gates = without_padding(routing)
    counted = torch.cat([(gates > 0).float().sum(0), logits.new_full((1,), len(logits))])
    counted = counted if average is None else average(counted)
    f = counted[:-1] / counted[-1].clamp(min=torch.finfo(counted.dtype).tiny)
    return logits.shape[-1] * (f * _mean(logits.softmax(-1))).sum()


def confidence_entropy(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean entropy, in nats, of the softmax of the logits (AoE section 4.3); scalar."""
    logits, _ = without_padding(routing)
    log_p = logits.log_softmax(-1)
    return -_mean((log_p.exp() * log_p).sum(-1))


def router_z(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean squared logsumexp of the logits (ST-MoE equation 5); scalar."""
    logits, _ = without_padding(routing)
    return _mean(logits.logsumexp(-1).square())


def gate_l1(routing: Routing, average: Average | None = None) -> Tensor:
    """Mean over units of Σ_i |g_i|, which makes ReLU gates sparse; scalar.

    ReMoE adapts its weight towards a target sparsity; here the weight is constant.
    """
    _, gates = without_padding(routing)
    return _mean(gates.abs().sum(-1))


LOSSES: dict[str, Callable[[Routing, Average | None], Tensor]] = {
    "load_balance": load_balance,
    "confidence_entropy": confidence_entropy,
    "router_z": router_z,
    "gate_l1": gate_l1,
}
"""Each is weighted by the field of `RoutingConfig` of the same name."""


def auxiliary_loss(
    routings: tuple[Routing, ...], design: RoutingConfig, average: Average | None = None
) -> Tensor | None:
    """The weighted auxiliary losses, each computed per layer and averaged over layers; None without any.

    `average` is for losses that are not means over units.
    """
    device = routings[0].gates.device  # layers may be on several
    weighted = [
        getattr(design, name)
        * torch.stack([loss(routing, average).to(device) for routing in routings]).mean()
        for name, loss in LOSSES.items()
        if getattr(design, name) != 0
    ]
    return torch.stack(weighted).sum() if weighted else None
