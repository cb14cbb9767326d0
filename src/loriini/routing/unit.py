"""What gets one routing decision: how the tokens of a call fall into units, and which states route each unit.

Axes: B sequences, L tokens of this call, H tokens of the history (those before it and its own), U units of
this call, S slots in a unit, D model width.

Positions count the tokens of each sequence from 0, padding left out (-1), so that a padded sequence falls
into the same units as it would alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from loriini.routing.design import RoutingConfig


@dataclass(frozen=True)
class Grid:
    """Tokens (B, L) as units (B, U, S), the last one filled up with empty slots.

    `slots_BL` is the slot of each token among U·S, and U·S itself for padding; None when token i stands in
    slot i. `valid_BU` says which units hold a token; None: all.
    """

    units: int
    slots_per_unit: int
    slots_BL: Tensor | None = None
    valid_BU: Tensor | None = None

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


@dataclass(frozen=True)
class Call:
    """What routing must know of one forward call besides its states.

    `positions_BH` covers the history; None: no padding, so positions are 0..H-1. `past` is H - L.
    `routing` is how pooled units are routed: as in training, once for the prompt, or segment by segment.
    """

    batch: int
    length: int
    past: int = 0
    positions_BH: Tensor | None = None
    prompt_lengths_B: Tensor | None = None
    labels_B: Tensor | None = None
    draw: Tensor | int = 0
    routing: str = "training"

    def grid(self, config: RoutingConfig) -> Grid:
        """How the tokens of this call fall into units."""
        if config.unit == "token":
            valid = None if self.positions_BH is None else self.positions_BH[:, self.past :] >= 0
            return Grid(self.length, 1, None, valid)
        if config.unit == "sequence" or self.routing == "prompt":
            return Grid(1, self.length)
        T = config.segment_length
        if self.positions_BH is None and self.past % T == 0:
            return Grid(-(-self.length // T), T)
        positions_BL = self.positions()[:, self.past :]
        start_B = positions_BL.amax(1).clamp(min=0) if self.length == 1 else self._first_segment(T) * T
        slots_per_unit = 1 if self.length == 1 else T
        units = int((positions_BL.amax(1) - start_B).amax().clamp(min=0)) // slots_per_unit + 1
        empty = positions_BL < 0
        slots_BL = (positions_BL - start_B[:, None]).masked_fill(empty, units * slots_per_unit)
        last_B = positions_BL.amax(1) - start_B
        first_slots_U = torch.arange(units, device=slots_BL.device) * slots_per_unit
        return Grid(units, slots_per_unit, slots_BL, first_slots_U <= last_B[:, None])

    def positions(self) -> Tensor:
        """Positions (B, H), or (1, H) when they are the same for every sequence."""
        if self.positions_BH is not None:
            return self.positions_BH
        device = None if self.prompt_lengths_B is None else self.prompt_lengths_B.device
        return torch.arange(self.past + self.length, device=device).expand(self.batch, -1)

    def position_ids(self, device: torch.device) -> Tensor:
        """The positions (B or 1, L) of this call's tokens; 0 for padding."""
        if self.positions_BH is None:
            return torch.arange(self.past, self.past + self.length, device=device)[None]
        return self.positions_BH[:, self.past :].clamp(min=0)

    def _first_segment(self, T: int) -> Tensor:
        """The segment (B,) in which the first token of this call stands."""
        if self.positions_BH is None:
            return torch.full((self.batch,), self.past // T)
        positions_BL = self.positions()[:, self.past :]
        first_B = positions_BL.masked_fill(positions_BL < 0, torch.iinfo(torch.long).max).amin(1)
        return torch.where(positions_BL.amax(1) >= 0, first_B // T, 0)

    def segments_of_units(self, config: RoutingConfig, grid: Grid) -> Tensor:
        """Which segment of its sequence each unit of the grid is (B, U)."""
        first_B = self._first_segment(config.segment_length)
        return first_B[:, None] + torch.arange(grid.units, device=first_B.device)


def prompt_source(states_BHD: Tensor, call: Call) -> Tensor:
    """Mean state of each sequence's prompt (B, 1, D): its first `prompt_lengths` tokens, or all of them."""
    if call.positions_BH is None and call.prompt_lengths_B is None:
        return states_BHD.mean(1, keepdim=True)
    positions_BH = call.positions()
    counted_BH = positions_BH >= 0
    if call.prompt_lengths_B is not None:
        counted_BH = counted_BH & (positions_BH < call.prompt_lengths_B[:, None])
    return _masked_mean(states_BHD, counted_BH)[:, None]


def segment_sources(states_BHD: Tensor, call: Call, config: RoutingConfig) -> Tensor:
    """The mean state (B, N, D) that routes each segment of the history (Lory §3.1, Algorithm 1).

    Segment k > 1 is routed by the mean of segment k-1; segment 1 by its own, of which only the prompt's
    tokens count when `prompt_lengths` are known. With `prefix`, all are routed by segment 1's.
    """
    B, H, D = states_BHD.shape
    T = config.segment_length
    segments = -(-H // T)
    if call.positions_BH is None:
        filled = pad(states_BHD, (0, 0, 0, segments * T - H)).view(B, segments, T, D)
        counts_N = torch.full((segments, 1), T, device=filled.device)
        counts_N[-1] = H - (segments - 1) * T
        means_BND = filled.sum(2) / counts_N
    else:
        means_BND = _means_by_segment(states_BHD, call.positions_BH, T, segments)
    first_BD = means_BND[:, 0]
    if call.prompt_lengths_B is not None:
        positions_BH = call.positions()
        counted = (positions_BH >= 0) & (positions_BH < call.prompt_lengths_B.clamp(max=T)[:, None])
        first_BD = _masked_mean(states_BHD, counted)
    if config.unit == "prefix":
        return first_BD[:, None].expand(-1, segments, -1)
    return torch.cat([first_BD[:, None], means_BND[:, :-1]], dim=1)


def segments_before(states_BHD: Tensor, call: Call, config: RoutingConfig) -> Tensor:
    """Mean state (B, L, D) of the segment before that of each token of the call; 0 in segment 1."""
    pooled_BND = segment_sources(states_BHD, call, config)
    positions_BL = call.positions()[:, call.past :].to(states_BHD.device)
    segments_BL1 = positions_BL.clamp(min=0)[..., None] // config.segment_length
    before_BLD = pooled_BND.gather(1, segments_BL1.expand(-1, -1, pooled_BND.shape[-1]))
    return before_BLD.masked_fill(segments_BL1 == 0, 0)


def _masked_mean(states_BHD: Tensor, counted_BH: Tensor) -> Tensor:
    weights_BH = counted_BH.to(states_BHD.dtype)
    return torch.einsum("bh,bhd->bd", weights_BH, states_BHD) / weights_BH.sum(1, keepdim=True).clamp(min=1)


def _means_by_segment(states_BHD: Tensor, positions_BH: Tensor, T: int, segments: int) -> Tensor:
    """Mean state of each segment (B, N, D) where padding shifts the segments; 0 for an empty one."""
    B, _, D = states_BHD.shape
    index_BH = torch.where(positions_BH >= 0, positions_BH // T, segments)
    sums = states_BHD.new_zeros(B, segments + 1, D)
    sums = sums.scatter_add(1, index_BH[..., None].expand(-1, -1, D), states_BHD)
    counts = states_BHD.new_zeros(B, segments + 1)
    counts = counts.scatter_add(1, index_BH, torch.ones_like(index_BH, dtype=states_BHD.dtype))
    return (sums / counts.clamp(min=1)[..., None])[:, :segments]
