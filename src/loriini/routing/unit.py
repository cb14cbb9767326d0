"""Units of routing: which tokens of a forward call share one decision.

Axes: B sequences, L tokens of this call, H tokens of the history (cached tokens and this call's), U units of
this call, S slots in a unit, D model width.

Positions count the tokens of each sequence from 0. Padding has position -1 and is not counted, so that a
sequence has the same units with padding as without. In a packed row, positions and segments start again at
each document; no unit holds tokens of two documents.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from loriini.routing.design import RoutingConfig


@dataclass(frozen=True)
class Movable:
    """A dataclass whose `to` moves its tensors; accelerate calls it if layers are on several devices."""

    def to(self, device: torch.device | str | int | None, non_blocking: bool = False) -> Self:
        """A copy with all tensors on `device`; None: this object itself, as with `Tensor.to`."""
        if device is None:
            return self
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {n: t.to(device, non_blocking=non_blocking) for n, t in tensors.items()}
        if values.get("device") is not None:
            moved["device"] = torch.device(device)
        return replace(self, **moved) if moved else self


@dataclass(frozen=True)
class RoutingContext(Movable):
    """What routing needs to know of a forward call besides its states.

    - `past`: tokens of each sequence in the cache, H - L.
    - `positions_BH`: positions of the history, -1 for padding; None: no padding, so they are 0..H-1.
    - `padded`: whether `positions_BH` may contain padding; testing it would synchronise a GPU.
    - `packed`: rows hold several documents, and positions count within each document.
    - `prompt_lengths_B`: each sequence's prompt, in tokens without padding; None: route as in training.
    - `inference_routing`: where there is a prompt, one decision by it (`prompt`), or one per `segment`.
    - `labels_B`: each sequence's expert, for the label scorer.
    - `decided`: every token continues a unit that was routed in an earlier call.
    - `decided_at`: tokens the last decision depends on; cropping a cache to fewer voids it.
    - `router_seed`: the seed of a random scorer's weights, () or one per sequence (B,).
    - `device`: where the states are.
    """

    batch: int
    length: int
    past: int = 0
    positions_BH: Tensor | None = None
    padded: bool = True
    packed: bool = False
    prompt_lengths_B: Tensor | None = None
    inference_routing: Literal["prompt", "segment"] = "prompt"
    labels_B: Tensor | None = None
    decided: bool = False
    decided_at: int = 1
    router_seed: Tensor | int = 0
    device: torch.device | None = None

    @property
    def prompt_routed(self) -> bool:
        """Whether one decision by the prompt routes every token of the call."""
        return self.prompt_lengths_B is not None and self.inference_routing == "prompt"

    def positions(self) -> Tensor:
        """Positions of the history (B, H)."""
        if self.positions_BH is not None:
            return self.positions_BH
        return torch.arange(self.past + self.length, device=self.device).expand(self.batch, -1)

    def new_positions(self) -> Tensor:
        """Positions of this call's tokens (B, L)."""
        return self.positions()[:, self.past :]

    def segments(self, T: int) -> Tensor:
        """Each token's segment of T tokens (B, H), as an index in its row; -1 for padding."""
        positions_BH = self.positions()
        if not self.packed:
            return torch.where(positions_BH < 0, -1, positions_BH // T)
        starts_BH = (positions_BH >= 0) & (positions_BH % T == 0)
        return (starts_BH.cumsum(1) - 1).masked_fill(positions_BH < 0, -1)

    def position_ids(self) -> Tensor:
        """Positions of this call's tokens (B, L), or (1, L) if `positions_BH` is None; 0 for padding."""
        positions_BL = self.new_positions()
        return positions_BL[:1] if self.positions_BH is None else positions_BL.clamp(min=0)


@dataclass(frozen=True)
class UnitLayout(Movable):
    """Tokens (B, L) as units (B, U, S), whose slots may be empty.

    - `slots_BL`: the slot of each token among U·S, or U·S itself for padding; None: token i is in slot i.
    - `valid_BU`: which units hold a token; None: all.
    - `segments_BU`: the index of each unit's segment in its document; None: units are not segments.
    """

    units: int
    slots_per_unit: int
    slots_BL: Tensor | None = None
    valid_BU: Tensor | None = None
    segments_BU: Tensor | None = None

    def group(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) → (B, U, S, D); empty slots are 0."""
        B, L, D = x_BLD.shape
        size = self.units * self.slots_per_unit
        if self.slots_BL is None:
            grouped = pad(x_BLD, (0, 0, 0, size - L)) if size != L else x_BLD
        else:
            index = self.slots_BL[..., None].expand(-1, -1, D)
            grouped = x_BLD.new_zeros(B, size + 1, D).scatter(1, index, x_BLD)[:, :size]
        return grouped.reshape(B, self.units, self.slots_per_unit, D)

    def ungroup(self, y_BUSD: Tensor, length: int) -> Tensor:
        """(B, U, S, D) → (B, L, D); padding gets 0."""
        y = y_BUSD.flatten(1, 2)
        if self.slots_BL is None:
            return y[:, :length]
        return pad(y, (0, 0, 0, 1)).gather(1, self.slots_BL[..., None].expand(-1, -1, y.shape[-1]))


def units_of_rows(design: RoutingConfig, positions_BL: Tensor) -> Tensor:
    """Number of units of each row (B,), from positions in documents, for units longer than a token."""
    batch, length = positions_BL.shape
    packed = RoutingContext(batch, length, positions_BH=positions_BL, padded=False, packed=True)
    return packed.segments(design.unit_length(length)).amax(1) + 1


def unit_layout(design: RoutingConfig, context: RoutingContext) -> UnitLayout:
    """How the tokens of a call fall into the units of a design."""
    if design.unit == "token":
        return UnitLayout(context.length, 1, valid_BU=_real_tokens(context))
    if context.packed:
        return _packed_units(context, design)
    if design.unit == "sequence" or context.prompt_routed:
        return UnitLayout(1, context.length)
    if context.decided:
        real_BL = _real_tokens(context)
        valid_B1 = None if real_BL is None else real_BL.any(1, keepdim=True)
        return UnitLayout(1, context.length, valid_BU=valid_B1)
    return _segments(context, design.segment_length)


def _real_tokens(context: RoutingContext) -> Tensor | None:
    """Which tokens of the call are not padding (B, L); None: all."""
    return context.new_positions() >= 0 if context.positions_BH is not None and context.padded else None


def _segments(context: RoutingContext, T: int) -> UnitLayout:
    """Segments of T positions as units; a call may begin and end within a segment."""
    positions_BL = context.new_positions()
    first_B = _first_segments(positions_BL, T)
    if context.length == 1:  # a unit of one slot instead of T
        return UnitLayout(1, 1, valid_BU=_real_tokens(context), segments_BU=first_B[:, None])
    if context.positions_BH is None and context.past % T == 0:
        units = -(-context.length // T)
        return UnitLayout(units, min(T, context.length), segments_BU=_count_from(first_B, units))
    slots_BL = positions_BL - T * first_B[:, None]
    # from the call's length, not its longest row's: processes that share experts need equally many units
    last = context.length - 1 if context.past == 0 else int(slots_BL.amax().clamp(min=0))
    units, slots = last // T + 1, min(T, last + 1)
    segments_BU = _count_from(first_B, units)
    return UnitLayout(
        units,
        slots,
        slots_BL=slots_BL.masked_fill(positions_BL < 0, units * slots),
        valid_BU=T * segments_BU <= positions_BL.amax(1, keepdim=True),
        segments_BU=segments_BU,
    )


def _packed_units(context: RoutingContext, design: RoutingConfig) -> UnitLayout:
    """The segments of each document, or whole documents, as the units of their row."""
    positions_BL = context.positions()
    longest = int(positions_BL.amax()) + 1
    T = design.unit_length(longest)
    units_BL = context.segments(T)
    units = int(units_BL.amax()) + 1
    index_BL = torch.where(units_BL < 0, units, units_BL)
    numbers_BU = positions_BL.new_zeros(len(positions_BL), units + 1)
    numbers_BU = numbers_BU.scatter(1, index_BL, positions_BL // T)[:, :units]
    return UnitLayout(
        units,
        T,
        slots_BL=torch.where(units_BL < 0, units * T, units_BL * T + positions_BL % T),
        valid_BU=_count_from(units_BL.new_zeros(len(units_BL)), units) <= units_BL.amax(1, keepdim=True),
        segments_BU=numbers_BU if design.segmented else None,
    )


def _first_segments(positions_BL: Tensor, T: int) -> Tensor:
    """The segment (B,) of each sequence's first token in the call; 0 if all are padding."""
    padding_BL = positions_BL < 0
    first_B = positions_BL.masked_fill(padding_BL, torch.iinfo(torch.long).max).amin(1)
    return torch.where(padding_BL.all(1), 0, first_B // T)


def _count_from(first_B: Tensor, count: int) -> Tensor:
    return first_B[:, None] + torch.arange(count, device=first_B.device)
