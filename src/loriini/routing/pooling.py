"""Pooling: the mean state by which each unit of a call is routed.

Axes: see `routing.unit`; N segments of the history.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from loriini.routing.design import RoutingConfig
from loriini.routing.unit import RoutingContext, UnitLayout


def routing_states(
    states_BHD: Tensor, context: RoutingContext, design: RoutingConfig, layout: UnitLayout
) -> Tensor:
    """The pooled states (B, U, D) that route each unit of a call, from the states of its history.

    With `linear_segment` they are (B, L, 2D): each token's state, then the mean of the previous segment.
    """
    if design.unit == "token":
        if design.pooled:
            return with_segment_before(states_BHD, context, design)
        return states_BHD[:, -context.length :]
    if context.packed:
        return packed_routing_states(states_BHD, context, design, layout)
    if layout.segments_BU is None:
        return prompt_mean(states_BHD, context, context.prompt_lengths_B)[:, None]
    return segment_routing_states(states_BHD, context, design, layout)


def segment_routing_states(
    states_BHD: Tensor, context: RoutingContext, design: RoutingConfig, layout: UnitLayout
) -> Tensor:
    """The mean state (B, U, D) that routes each segment of a call (Lory §3.1, Algorithm 1).

    Segment k > 1 is routed by the mean of segment k-1; segment 1 by its own mean or, if there is a prompt,
    that of the prompt's tokens in it. With `unit=prefix`, the mean that routes segment 1 routes all.
    """
    assert layout.segments_BU is not None
    T = design.segment_length
    means_BND = segment_means(states_BHD, context, T)
    first_BD = means_BND[:, 0]
    if context.prompt_lengths_B is not None:
        first_BD = prompt_mean(states_BHD, context, context.prompt_lengths_B.clamp(max=T))
    if design.unit == "prefix":
        return first_BD[:, None].expand(-1, layout.units, -1)
    pooled_BND = torch.cat([first_BD[:, None], means_BND[:, :-1]], dim=1)
    if layout.slots_BL is None and context.past == 0:
        return pooled_BND
    segments_BU = layout.segments_BU.clamp(max=pooled_BND.shape[1] - 1)
    return pooled_BND.gather(1, segments_BU[..., None].expand(-1, -1, pooled_BND.shape[-1]))


def prompt_mean(states_BHD: Tensor, context: RoutingContext, lengths_B: Tensor | None) -> Tensor:
    """Mean state (B, D) of the first `lengths_B` tokens of each sequence; None: of all its tokens."""
    if context.positions_BH is None and lengths_B is None:
        return states_BHD.mean(1)
    positions_BH = context.positions()
    counted_BH = positions_BH >= 0
    if lengths_B is not None:
        counted_BH = counted_BH & (positions_BH < lengths_B[:, None])
    wide = torch.promote_types(states_BHD.dtype, torch.float32)  # also under autocast
    sums_BD = states_BHD.masked_fill(~counted_BH[..., None], 0).sum(1, dtype=wide)
    return (sums_BD / counted_BH.sum(1, keepdim=True).clamp(min=1)).to(states_BHD.dtype)


def packed_routing_states(
    states_BHD: Tensor, context: RoutingContext, design: RoutingConfig, layout: UnitLayout
) -> Tensor:
    """The mean state (B, U, D) that routes each unit of packed rows, document by document."""
    means_BUD = segment_means(states_BHD, context, layout.slots_per_unit, layout.units)
    if layout.segments_BU is None:  # units are documents
        return means_BUD
    back_BU = layout.segments_BU if design.unit == "prefix" else layout.segments_BU.clamp(max=1)
    sources_BU = torch.arange(layout.units, device=back_BU.device) - back_BU
    return means_BUD.gather(1, sources_BU[..., None].expand(-1, -1, means_BUD.shape[-1]))


def with_segment_before(states_BHD: Tensor, context: RoutingContext, design: RoutingConfig) -> Tensor:
    """Each token's state, then the mean of the segment before its own (0 in segment 1); (B, L, 2D)."""
    T, tokens_BLD = design.segment_length, states_BHD[:, context.past :]
    # A packed row may have a segment for every token; counting them would stop a GPU or a compiled graph.
    means_BND = segment_means(states_BHD, context, T, states_BHD.shape[1] if context.packed else None)
    before_BL1 = context.segments(T)[:, context.past :, None] - 1
    gathered_BLD = means_BND.gather(1, before_BL1.clamp(min=0).expand(-1, -1, means_BND.shape[-1]))
    before_BLD = gathered_BLD.masked_fill(context.new_positions()[..., None] < T, 0)
    return torch.cat([tokens_BLD, before_BLD], dim=-1)


def segment_means(states_BHD: Tensor, context: RoutingContext, T: int, segments: int | None = None) -> Tensor:
    """Mean state of each segment of the history (B, N, D); 0 for an empty one.

    N is `segments`, by default ⌈H / T⌉. Sums and counts are at least float32: in bfloat16 a sum of ones
    stops growing at 256.
    """
    B, H, D = states_BHD.shape
    dtype, wide = states_BHD.dtype, torch.promote_types(states_BHD.dtype, torch.float32)
    segments = segments or -(-H // T)
    if context.positions_BH is None:
        missing = segments * T - H
        filled = pad(states_BHD, (0, 0, 0, missing)) if missing else states_BHD  # padding by 0 would copy
        counts_N1 = torch.full((segments, 1), T, device=filled.device)
        counts_N1[-1] = T - missing
        return (filled.reshape(B, segments, T, D).sum(2, dtype=wide) / counts_N1).to(dtype)
    index_BH = context.segments(T)
    sums_BND = sums_by_segment(states_BHD, index_BH, segments)
    counts_BN1 = sums_by_segment(torch.ones_like(states_BHD[..., :1]), index_BH, segments)
    return (sums_BND / counts_BN1.clamp(min=1)).to(dtype)


def sums_by_segment(states_BLD: Tensor, index_BL: Tensor, segments: int) -> Tensor:
    """Sums of states by segment (B, N, D), at least float32; index -1 is left out."""
    B, _, D = states_BLD.shape
    wide = torch.promote_types(states_BLD.dtype, torch.float32)
    index_BLD = torch.where(index_BL < 0, segments, index_BL)[..., None].expand(-1, -1, D)
    sums = states_BLD.new_zeros(B, segments + 1, D, dtype=wide)
    return sums.scatter_add(1, index_BLD, states_BLD.to(wide))[:, :segments]
