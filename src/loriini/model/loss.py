"""The loss of next tokens, from states or from their logits."""

from typing import Any

import torch
from torch import Tensor, nn

from loriini.model.configuration import LoriiniConfig
from loriini.routing.unit import RoutingContext

IGNORED = -100
"""The target of positions that the loss leaves out, as in transformers."""
MOST_LOGITS = 1 << 28
"""Logits that are held at once where losses of single tokens are computed: 1 GiB in float32."""


def next_tokens(labels: Tensor) -> Tensor:
    """Labels (B, L) as the targets of each position: shifted by one, ignored for the last."""
    return nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)


def skipped_positions(config: LoriiniConfig) -> int:
    """First positions of a document that the training loss leaves out: segment 1, with `skip_loss`."""
    design = config.effective_routing
    skips = design.segmented and design.first_segment == "skip_loss"
    return design.segment_length if skips else 0


def unseen_targets(targets_BL: Tensor, context: RoutingContext, config: LoriiniConfig) -> Tensor:
    """The targets of a training call; with `skip_loss`, those of segment 1 ignored, which routed it.

    A prompt routes in its place: of its call, only targets inside it were seen.
    """
    seen: Tensor | int = skipped_positions(config)
    if not seen:
        return targets_BL
    if (lengths_B := context.prompt_lengths_B) is not None:
        lengths_B = lengths_B if context.prompt_routed else lengths_B.clamp(max=seen)
        seen = lengths_B[:, None] - 1
    return targets_BL.masked_fill(context.new_positions() < seen, IGNORED)


def counted_items(given_BL: Tensor, targets_BL: Tensor, items: Tensor | int | None) -> Tensor | int | None:
    """A batch's `items`, of which a call ignores as large a share as of its `given` targets."""
    if items is None or targets_BL is given_BL:
        return items
    left, given = ((each != IGNORED).sum().clamp(min=1) for each in (targets_BL, given_BL))
    return items * (left / given)


def share_of_batch(auxiliary: Tensor, targets_BL: Tensor, items: Tensor | int | None) -> Tensor:
    """What an auxiliary loss adds in one call, where a batch has `items` targets in all its calls."""
    return auxiliary if items is None else auxiliary * ((targets_BL != IGNORED).sum() / items)


def has_fused_loss() -> bool:
    """Whether this torch has a fused output head and cross-entropy (2.13 has)."""
    return hasattr(nn.functional, "linear_cross_entropy")


def fused_loss(
    states_BLD: Tensor,
    head_VD: Tensor,
    targets_BL: Tensor,
    num_items: Tensor | int,
    bias_V: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of next tokens, summed and divided by `num_items`, without holding the logits (B, L, V).

    Its naive twin is the head, with its bias, followed by transformers' loss. ValueError before torch 2.13.
    """
    if not has_fused_loss():
        raise ValueError("skip_logits=True needs torch 2.13; leave it out to compute the logits")
    options = torch.nn.LinearCrossEntropyOptions()  # type: ignore[attr-defined, unused-ignore]
    fused: Any = nn.functional.linear_cross_entropy  # type: ignore[attr-defined, unused-ignore]
    device = states_BLD.device.type
    if torch.is_autocast_enabled(device):  # autocast does not cover this function
        dtype = torch.get_autocast_dtype(device)
        states_BLD, head_VD = states_BLD.to(dtype), head_VD.to(dtype)
        bias_V = None if bias_V is None else bias_V.to(dtype)
    targets_M = targets_BL.flatten()
    # Summed in float32: torch's own mean has the states' dtype, with the three digits of bfloat16.
    losses_M = fused(
        states_BLD.flatten(0, 1),
        head_VD,
        targets_M,
        linear_bias=bias_V,
        reduction="none",
        ignore_index=IGNORED,
        options=options,
    )
    total: Tensor = losses_M.float().sum()
    return total / num_items


def token_losses(
    states_BLD: Tensor, head: nn.Module, targets_BL: Tensor, vocab_size: int, most_logits: int = MOST_LOGITS
) -> Tensor:
    """Cross-entropy (B, L) of each target, float32 and 0 where ignored, with `most_logits` at once.

    Its naive twin holds the logits of all positions.
    """
    size = max(1, most_logits // vocab_size)
    parts = zip(states_BLD.flatten(0, 1).split(size), targets_BL.flatten().split(size), strict=True)
    losses = [
        nn.functional.cross_entropy(head(states).float(), targets, reduction="none", ignore_index=IGNORED)
        for states, targets in parts
    ]
    return torch.cat(losses).view_as(targets_BL)
