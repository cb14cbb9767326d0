"""Expert parallelism: each process of a group holds whole experts, to which tokens are sent.

The E experts are split over a group of G processes, each with its own data. Every process sorts its
pairs of a unit and an expert, sends each pair's states to the process that holds the expert (all-to-all),
computes what it receives, and sends the outputs back. Merged parameters would need every expert in every
process: see `expertwise`.

Axes: see `model.experts.dispatch`; H experts of this process, R pairs that it receives, W numbers of a pair's
states.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from loriini.model.experts.affine import affine_by_expert
from loriini.model.experts.dispatch import find_pairs, inverse
from loriini.model.experts.stacked import NO_ACTIVATIONS, NOT_FIXED, Tensors
from loriini.parallel.distributed_experts import DistributedExperts, cast_to_send, exchanged
from loriini.routing.selection import FixedCounts

REPLICATED = {"low_proj"}
"""AoE's W_down: every process holds that of every expert, to score its own tokens."""


@dataclass(frozen=True)
class Exchange:
    """The pairs that this process exchanges with each process of its group.

    - `sent_G`, `received_G`: how many pairs go to and come from each process, sorted by expert.
    - `order_R`: the received pairs in the order of their experts; `places_R`: its inverse.
    - `experts_R`, `ends_H`: each sorted pair's expert, counted from this process's first, and where each
      expert's pairs end, int32.
    """

    group: dist.ProcessGroup
    sent_G: list[int]
    received_G: list[int]
    order_R: Tensor
    places_R: Tensor
    experts_R: Tensor
    ends_H: Tensor

    def send(self, x_PW: Tensor) -> Tensor:
        """Rows of this process's pairs → rows of the pairs of its experts, sorted by expert; (R, W)."""
        return all_to_all(x_PW, self.sent_G, self.received_G, self.group).index_select(0, self.order_R)

    def send_back(self, y_RW: Tensor) -> Tensor:
        """`send` reversed, which is also its transpose; (P, W)."""
        y_RW = y_RW.index_select(0, self.places_R)
        return all_to_all(y_RW, self.received_G, self.sent_G, self.group)


def all_to_all(x: Tensor, sent_G: list[int], received_G: list[int], group: dist.ProcessGroup) -> Tensor:
    """Rows in order of the process they go to → received rows, in order of the process they come from."""
    received = x.new_empty(sum(received_G), *x.shape[1:])
    dist.all_to_all_single(received, x.contiguous(), received_G, sent_G, group=group)
    return received


def plan_exchange(ends_E: Tensor, per_expert: int | None, group: dist.ProcessGroup) -> Exchange:
    """The exchange of pairs sorted by expert; each expert's pairs end at `ends_E`.

    If every process sends `per_expert` pairs to every expert, the counts need no exchange, and the CPU does
    not wait for the device; otherwise the counts are exchanged and read.
    """
    processes, device = group.size(), ends_E.device
    counts_GH = ends_E.diff(prepend=ends_E.new_zeros(1)).view(processes, -1)
    held = counts_GH.shape[1]
    if per_expert is None:
        received_GH = torch.empty_like(counts_GH)
        dist.all_to_all_single(received_GH, counts_GH, group=group)
        sent_G, received_G = torch.stack([counts_GH.sum(1), received_GH.sum(1)]).tolist()
    else:
        received_GH = counts_GH
        sent_G = received_G = [per_expert * held] * processes
    experts_H = torch.arange(held, device=device)
    total = sum(received_G)
    arrived_R = experts_H.repeat(processes).repeat_interleave(received_GH.flatten(), output_size=total)
    experts_R, order_R = arrived_R.sort(stable=True)
    ends_H = received_GH.sum(0).cumsum(0).to(torch.int32)
    return Exchange(group, sent_G, received_G, order_R, inverse(order_R), experts_R, ends_H)


class WholeExperts(DistributedExperts):
    """This process's experts, which compute the tokens that selected them in all processes of the group.

    Parameters are sharded along the experts, except those in REPLICATED.
    """

    def split_dim(self, name: str) -> int | None:
        """0, the dimension of the experts; None (replicated) for a parameter in REPLICATED."""
        return None if name in REPLICATED else 0

    def by_outputs(
        self, x: Tensor, gates_NE: Tensor, known: Tensors = NO_ACTIVATIONS, counts: FixedCounts = NOT_FIXED
    ) -> Tensor:
        """The sum of the selected experts' gated outputs for each unit of this process; shaped as `x`.

        Low-rank activations are computed again by the process that holds the expert: a product of rank r per
        pair, instead of r more numbers to send.
        """
        pairs = find_pairs(gates_NE, counts)
        exchange = plan_exchange(pairs.ends_E, counts.per_expert, self.group)
        x_P = pairs.take(cast_to_send(x))
        x_RW = exchanged(x_P.flatten(1), exchange.send, exchange.send_back)
        slots = x[0].numel() // x.shape[-1]
        affine = affine_by_expert(exchange.experts_R.repeat_interleave(slots), exchange.ends_H * slots)
        y_RD = self.ffn(x_RW.view(-1, x.shape[-1]), self.held(), affine)
        y_PW = exchanged(y_RD.view_as(x_RW), exchange.send_back, exchange.send)
        return pairs.collect(y_PW.view_as(x_P), len(x))

    def held(self) -> dict[str, Tensor]:
        """The parameters of this process's experts, by name, each (H, …)."""
        weights = self.stacked()
        held = self.num_experts // self.group.size()
        first = self.group.rank() * held
        return weights | {name: weights[name][first : first + held] for name in weights.keys() & REPLICATED}
