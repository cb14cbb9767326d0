"""Pairs of a unit and an expert it selected, sorted by expert, and the sum of their outputs for each unit.

A unit is a token or a whole segment or sequence. Where the design fixes the number of pairs, no step reads a
value from the device: nothing waits for it, and torch.compile sees static shapes.

Axes: N units, S slots in a unit, D model width, E experts, P pairs, K of them per unit, C per expert.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loriini.routing.selection import FixedCounts


@dataclass(frozen=True)
class Pairs:
    """The pairs, sorted by expert.

    - `units_P`, `experts_P`, `gates_P`: each pair's unit, expert and routing weight.
    - `ends_E`: where each expert's pairs end, int32.
    - `places_NK`: where each unit's pairs are; None where their number varies.
    """

    units_P: Tensor
    experts_P: Tensor
    gates_P: Tensor
    ends_E: Tensor
    places_NK: Tensor | None = None

    def take(self, x_ND: Tensor) -> Tensor:
        """Each pair's states, which are its unit's; (N, …) to (P, …)."""
        if self.places_NK is None:
            return x_ND.index_select(0, self.units_P)
        taken: Tensor = TakeUnits.apply(x_ND, self.units_P, self.places_NK)
        return taken

    def collect(self, y_PD: Tensor, units: int) -> Tensor:
        """The gated outputs of all pairs, summed for each of the `units`; (P, …) to (N, …)."""
        weighted = y_PD * self.gates_P.to(y_PD.dtype).view(-1, *(1 for _ in y_PD.shape[1:]))
        if self.places_NK is None:
            return y_PD.new_zeros(units, *y_PD.shape[1:]).index_add(0, self.units_P, weighted)
        collected: Tensor = SumPairs.apply(weighted, self.units_P, self.places_NK)
        return collected

    def pick(self, activations_NEW: Tensor) -> Tensor:
        """Each pair's activation, from those of every unit and expert; (P, W)."""
        rows_P = self.units_P * activations_NEW.shape[1] + self.experts_P
        picked: Tensor = PickRows.apply(activations_NEW.flatten(0, 1), rows_P)
        return picked


class TakeUnits(torch.autograd.Function):
    """x[units_P], whose gradient sums each unit's K rows; autograd's would add rows one by one."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, units_P: Tensor, places_NK: Tensor) -> Tensor:
        ctx.save_for_backward(units_P, places_NK)
        return x_ND.index_select(0, units_P)

    @staticmethod
    def backward(ctx: Any, dx_PD: Tensor) -> tuple[Tensor, None, None]:
        return SumPairs.apply(dx_PD, *ctx.saved_tensors), None, None


class SumPairs(torch.autograd.Function):
    """The sum of each unit's K rows; `TakeUnits` transposed."""

    @staticmethod
    def forward(ctx: Any, y_PD: Tensor, units_P: Tensor, places_NK: Tensor) -> Tensor:
        ctx.save_for_backward(units_P, places_NK)
        first, *others = places_NK.unbind(1)
        total = y_PD.index_select(0, first)
        for places_N in others:
            total = total + y_PD.index_select(0, places_N)
        return total

    @staticmethod
    def backward(ctx: Any, dy_ND: Tensor) -> tuple[Tensor, None, None]:
        return TakeUnits.apply(dy_ND, *ctx.saved_tensors), None, None


class PickRows(torch.autograd.Function):
    """a[rows_P] of distinct rows, whose gradient is copied to them; autograd's would be added."""

    @staticmethod
    def forward(ctx: Any, a_RW: Tensor, rows_P: Tensor) -> Tensor:
        ctx.save_for_backward(rows_P)
        ctx.rows = a_RW.shape[0]
        return a_RW.index_select(0, rows_P)

    @staticmethod
    def backward(ctx: Any, da_PW: Tensor) -> tuple[Tensor, None]:
        (rows_P,) = ctx.saved_tensors
        return da_PW.new_zeros(ctx.rows, da_PW.shape[1]).index_copy(0, rows_P, da_PW), None


def find_pairs(gates_NE: Tensor, counts: FixedCounts) -> Pairs:
    """The selected pairs (gate > 0), or if `counts` fixes their number, those with the largest gates."""
    if counts.per_unit is not None:
        return _by_unit(gates_NE, counts.per_unit)
    if counts.per_expert is not None:
        return _by_expert(gates_NE, counts.per_expert)
    return _any_number(gates_NE)


def _by_unit(gates_NE: Tensor, K: int) -> Pairs:
    gates_NK, experts_NK = gates_NE.topk(K)
    experts_P, order_P = experts_NK.flatten().sort(stable=True)
    experts_E = torch.arange(gates_NE.shape[1], device=gates_NE.device)
    return Pairs(
        units_P=order_P // K,
        experts_P=experts_P,
        gates_P=PickRows.apply(gates_NK.flatten()[:, None], order_P).squeeze(1),
        ends_E=torch.searchsorted(experts_P, experts_E, right=True, out_int32=True),
        places_NK=inverse(order_P).view(-1, K),
    )


def inverse(order_P: Tensor) -> Tensor:
    """The inverse of a permutation: the place of each number in it."""
    places_P = torch.arange(order_P.shape[0], device=order_P.device)
    return torch.empty_like(order_P).scatter(0, order_P, places_P)


def _by_expert(gates_NE: Tensor, C: int) -> Pairs:
    gates_EC, units_EC = gates_NE.T.topk(C)
    experts_E = torch.arange(len(gates_EC), device=gates_NE.device)
    ends_E = ((experts_E + 1) * C).to(torch.int32)
    return Pairs(units_EC.flatten(), experts_E.repeat_interleave(C), gates_EC.flatten(), ends_E)


def _any_number(gates_NE: Tensor) -> Pairs:
    """Any number of pairs; the CPU waits for a GPU to count them."""
    chosen_EN = (gates_NE > 0).T
    experts_P, units_P = chosen_EN.nonzero(as_tuple=True)
    ends_E = chosen_EN.sum(1).cumsum(0).to(torch.int32)
    return Pairs(units_P, experts_P, gates_NE[units_P, experts_P], ends_E)
