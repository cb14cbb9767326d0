"""Expert-wise model parallelism: every process of a group computes a slice of every expert (Lory section 6).

The width f of all experts is cut over a group of G processes, each with data of its own. Their states and
gates are gathered, each process computes its slice of every expert for all of them, and the slices' sum goes
back to whom it belongs. Activations travel, weights do not. It holds for merged parameters and for combined
outputs alike, since both are sums over the width.

Axes: see `model.experts`; G·N, G·M: the units and tokens of the whole group.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from loriini.model.experts import NONE, Experts, Named

# The names since torch 2.13, and those before.
GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Gather(torch.autograd.Function):
    """(N, …) of each process → (G·N, …) of all, in rank order; gradients are summed and go back.

    Each process knows only the part of the gradient that came through its own slice of the experts, hence
    the sum: it makes the gradients of states, gates and, behind them, routers whole.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Gather."""
        ctx.group = group
        return all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor, None]:
        """Sum and scatter."""
        return reduce_scatter(dx, ctx.group), None


class Scatter(torch.autograd.Function):
    """(G·N, …) of each process, a term of a sum → the sum's (N, …) of this process; `Gather` turned round."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Sum and scatter."""
        ctx.group = group
        return reduce_scatter(y, group)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        """Gather."""
        return all_gather(dy, ctx.group), None


def all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """(N, …) → (G·N, …)."""
    gathered = x.new_empty(group.size() * x.shape[0], *x.shape[1:])
    GATHER(gathered, x.contiguous(), group=group)
    return gathered


def reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """(G·N, …) → (N, …)."""
    mine = x.new_empty(x.shape[0] // group.size(), *x.shape[1:])
    REDUCE_SCATTER(mine, x.contiguous(), group=group)
    return mine


class ExpertWise(Experts):
    """What a slice of experts adds to its kind: the exchange around what it computes."""

    group: dist.ProcessGroup
    is_slice = True

    def by_parameters(self, x_NSD: Tensor, gates_NE: Tensor, recompute: bool = False) -> Tensor:
        """One merged FFN for each unit of this process; (N, S, D)."""
        return self._leave(super().by_parameters(*self._enter(x_NSD, gates_NE), recompute))

    def by_outputs(self, x_MD: Tensor, gates_ME: Tensor, known: Named = NONE) -> Tensor:
        """The selected experts' gated outputs for each token of this process; (M, D).

        Low-rank activations are computed again for the tokens gathered: of all experts they are larger than
        the states that they come from.
        """
        return self._leave(super().by_outputs(*self._enter(x_MD, gates_ME)))

    def stacked(self) -> dict[str, Tensor]:
        """All parameters by name; an output's bias counts in one process only, for outputs are summed."""
        counts = float(self.group.rank() == 0)
        return {n: w * counts if n == self.output_bias else w for n, w in super().stacked().items()}

    def _enter(self, x: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
        """The states and gates of the whole group; an only expert needs no gates."""
        device = x.device.type
        if torch.is_autocast_enabled(device):  # what the products would do anyway, at half the bytes
            x = x.to(torch.get_autocast_dtype(device))
        gathered = Gather.apply(x, self.group)
        return gathered, Gather.apply(gates, self.group) if self.num_experts > 1 else gates

    def _leave(self, y: Tensor) -> Tensor:
        summed: Tensor = Scatter.apply(y, self.group)
        return summed


def slice_experts(experts: Experts, group: dist.ProcessGroup) -> Experts:
    """Let experts on the meta device hold their share of the width only, and exchange what they need."""
    for name, dim in experts.width_dims.items():
        whole = getattr(experts, name)
        sizes = [size // group.size() if i == dim else size for i, size in enumerate(whole.shape)]
        setattr(experts, name, nn.Parameter(whole.new_empty(sizes), requires_grad=whole.requires_grad))
    kind = type(experts)
    experts.__class__ = type(f"ExpertWise{kind.__name__}", (ExpertWise, kind), {})
    experts.group = group  # type: ignore[assignment]
    return experts
