"""Expert-wise model parallelism: each process of a group computes a slice of every expert (Lory section 6).

The width f of all experts is sharded over a group of G processes, each with its own data. Their states and
gates are gathered, each process computes its slice of every expert for all of them, and the sum over slices
is scattered back. Activations are sent instead of weights. This works for merged parameters and for
combined outputs, since both are sums over the width.

Axes: see `model.experts.stacked`; G·N, G·M: the units and tokens of the whole group.
"""

from functools import partial

import torch.distributed as dist
from torch import Tensor

from loriini.model.experts.stacked import NO_ACTIVATIONS, NOT_FIXED, Tensors
from loriini.parallel.distributed_experts import DistributedExperts, cast_to_send, exchanged
from loriini.routing.selection import FixedCounts

# Their names since torch 2.13, or before.
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """(N, …) of each process → (G·N, …) of all, in rank order."""
    gathered = x.new_empty(group.size() * x.shape[0], *x.shape[1:])
    ALL_GATHER(gathered, x.contiguous(), group=group)
    return gathered


def reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """`all_gather` transposed: the sum of all processes' (G·N, …) → this process's (N, …) of it."""
    mine = x.new_empty(x.shape[0] // group.size(), *x.shape[1:])
    REDUCE_SCATTER(mine, x.contiguous(), group=group)
    return mine


class SlicedExperts(DistributedExperts):
    """This process's slices of the group's experts: every parameter is sharded along the width."""

    def split_dim(self, name: str) -> int | None:
        """The dimension of the width; None (replicated) for a parameter without one."""
        return self.width_dims[name]

    def by_parameters(self, x_NSD: Tensor, gates_NE: Tensor, recompute: bool = False) -> Tensor:
        """One merged FFN for each unit of this process; (N, S, D)."""
        return self._leave(super().by_parameters(self._enter(x_NSD), self._gather(gates_NE), recompute))

    def by_outputs(
        self, x: Tensor, gates_NE: Tensor, known: Tensors = NO_ACTIVATIONS, counts: FixedCounts = NOT_FIXED
    ) -> Tensor:
        """The sum of the selected experts' gated outputs for each unit of this process; shaped as `x`.

        Low-rank activations are recomputed for the gathered tokens: those of all experts are larger than the
        states, which are gathered anyway.
        """
        if counts.per_expert is not None:
            counts = FixedCounts(per_expert=self.group.size() * counts.per_expert)
        return self._leave(super().by_outputs(self._enter(x), self._gather(gates_NE), NO_ACTIVATIONS, counts))

    def single(self, x: Tensor) -> Tensor:
        """The FFN of the only expert."""
        return self._leave(super().single(self._enter(x)))

    def stacked(self) -> dict[str, Tensor]:
        """This process's part of every parameter, by name.

        An output's bias counts in one process only, since outputs are summed.
        """
        weights = super().stacked()
        if self.output_bias is not None:
            weights[self.output_bias] = weights[self.output_bias] * float(self.group.rank() == 0)
        return weights

    def _enter(self, x: Tensor) -> Tensor:
        """The states of the whole group."""
        return self._gather(cast_to_send(x))

    def _gather(self, x: Tensor) -> Tensor:
        """The rows of all processes; gradients are summed and scattered.

        The sum completes the gradients of states, gates and routers: each process computes only the part that
        comes from its own slice of the experts.
        """
        return exchanged(x, partial(all_gather, group=self.group), partial(reduce_scatter, group=self.group))

    def _leave(self, y: Tensor) -> Tensor:
        """This process's rows of the sum over slices."""
        return exchanged(y, partial(reduce_scatter, group=self.group), partial(all_gather, group=self.group))
