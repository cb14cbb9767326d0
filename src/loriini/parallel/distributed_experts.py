"""Experts split over a group of processes: each holds a part of every parameter, as a DTensor."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from loriini.model.experts.stacked import Experts
from loriini.model.kernels.products import product_dtype

Collective = Callable[[Tensor], Tensor]
"""A linear exchange of rows between the processes of a group."""


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, collective: Collective, transposed: Collective) -> Tensor:
        ctx.transposed = transposed
        return collective(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed(dy), None, None


@torch.compiler.disable  # torch before 2.13 traces the collectives, and loses the gradients
def exchanged(x: Tensor, collective: Collective, transposed: Collective) -> Tensor:
    """`collective(x)`; its gradients go back through `transposed`."""
    y: Tensor = _Exchanged.apply(x, collective, transposed)
    return y


class DistributedExperts(Experts):
    """This process's part of `whole` experts; `split_kind` adds the FFN of one kind of experts.

    Parameters are DTensors over the group's `mesh`: sharded along `split_dim`, or replicated if it is None.
    """

    group: dist.ProcessGroup

    def __init__(self, whole: Experts, mesh: DeviceMesh) -> None:
        Experts.__init__(self, whole.num_experts)  # the FFN's class would allocate whole experts
        self.group = mesh.get_group()
        for name, weight in whole.stacked().items():
            dim = self.split_dim(name)
            placement = Replicate() if dim is None else Shard(dim)
            part = distribute_tensor(weight.detach(), mesh, [placement])
            self.register_parameter(name, nn.Parameter(part, requires_grad=weight.requires_grad))

    def split_dim(self, name: str) -> int | None:
        """The dimension along which a parameter is sharded; None where every process holds all of it."""
        raise NotImplementedError

    def stacked(self) -> dict[str, Tensor]:
        """This process's part of every parameter, by name; gradients of replicated ones are partial sums."""
        return {name: _local_weight(weight) for name, weight in super().stacked().items()}


@cache
def split_kind(way: type[DistributedExperts], kind: type[Experts]) -> type[DistributedExperts]:
    """The class of experts of one `kind` that are split in one `way`, such as SlicedSwigluExperts."""
    return type(way.__name__.removesuffix("Experts") + kind.__name__, (way, kind), {})


def cast_to_send(x: Tensor) -> Tensor:
    """States in the dtype of the products, cast before they are sent: bfloat16 halves the bytes."""
    return x.to(product_dtype(x))


def _local_weight(weight: Tensor) -> Tensor:
    if not isinstance(weight, DTensor):
        return weight
    placements = [Partial() if placement.is_replicate() else placement for placement in weight.placements]
    return weight.to_local(grad_placements=placements)
