"""The loss of next tokens, from states or from their logits."""

from typing import Any

import torch
from torch import Tensor, nn

from loriini.model.configuration import LoriiniConfig

IGNORED = -100
"""The target of positions that the loss leaves out, as in transformers."""


def next_tokens(labels: Tensor) -> Tensor:
    """Labels (B, L) as the targets of each position: shifted by one, ignored for the last."""
    return nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)


def skipped_positions(config: LoriiniConfig) -> int:
    """First positions of a document that the training loss leaves out: segment 1, with `skip_loss`."""
    design = config.effective_routing
    skips = design.segmented and design.first_segment == "skip_loss"
    return design.segment_length if skips else 0


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

    Its naive twin is the head, with its bias, followed by transformers' loss.
    """
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
