"""The loss of next tokens, from states or from logits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from loriini.model.kernels.products import aligned_head, product_dtype
from loriini.routing.unit import RoutingContext

IGNORE_INDEX = -100
"""The label, or target, of a token that the loss leaves out; PyTorch's default."""
MOST_LOGITS = 1 << 25
"""Most logits held at once where they need not be returned: 128 MiB in float32."""
TILE = 128
"""Rows of a tile of a GPU's matrix product, which computes whole tiles."""
LossOfRows = Callable[
    [Tensor, Tensor, Tensor | None, Tensor, torch.dtype, float], tuple[Tensor, Tensor | None, Tensor]
]
"""`loss_of_rows`, or its compiled form."""


class CallLoss(NamedTuple):
    """The loss of a call's targets, and its parts.

    - `loss`: scalar; with reduction `none`, each target's (B, L).
    - `cross_entropy`: of the same shape; without gradient where there is a z-loss.
    - `output_z_loss`: the part of `loss` that is the weighted z-loss of the output logits, scalar, without
      gradient; None: there is no z-loss.
    """

    loss: Tensor
    cross_entropy: Tensor
    output_z_loss: Tensor | None


def loss_parts(loss: Tensor, z_loss: Tensor | None = None) -> CallLoss:
    """The parts of a loss, which includes `z_loss` if that is given."""
    if z_loss is None:
        return CallLoss(loss, loss, None)
    return CallLoss(loss, (loss - z_loss).detach(), z_loss.detach())


def reads_weights_alone(head: nn.Module) -> bool:
    """Whether an output head is only weight and bias, as `fused_loss` assumes: no adapter, no hook."""
    of_forward, of_backward = head._forward_hooks, head._backward_hooks
    before = head._forward_pre_hooks or head._backward_pre_hooks
    hooked = of_forward or of_backward or before or hasattr(head, "_hf_hook")  # accelerate's
    return type(head) is nn.Linear and not hooked


class Targets(NamedTuple):
    """The targets of a call, and the scales by which the losses of a batch's calls add up to the batch's.

    - `ids_BL`: the tokens to predict; IGNORE_INDEX where the loss counts none.
    - `divisor`: number by which their summed loss is divided.
    - `share`: number by which an auxiliary loss is multiplied.
    """

    ids_BL: Tensor
    divisor: Tensor | int
    share: Tensor | int


def targets_of(
    labels_BL: Tensor, states_BLD: Tensor, context: RoutingContext, skipped: int, items: Tensor | int | None
) -> Targets:
    """The targets of a call: its labels, without those of the first `skipped` positions, which routing saw.

    `items`: number of targets in the whole batch; None if this call is the batch. With `skipped`, it is
    scaled by this call's share of kept targets.

    ValueError for labels of another shape than the states, and with `skipped` if states are left out.
    """
    if labels_BL.shape != states_BLD.shape[:2]:
        found, needed = tuple(labels_BL.shape), tuple(states_BLD.shape[:2])
        raise ValueError(f"labels are {found}; they must be {needed}, one for each token that has logits")
    ids_BL = _without_first(labels_BL, context, skipped) if skipped else labels_BL
    if items is None:
        return Targets(ids_BL, _count(ids_BL).clamp(min=1), 1)
    items = items + (items == 0)  # a batch without targets has a loss of 0
    given = _count(labels_BL)
    kept = _count(ids_BL).clamp(min=1) / given.clamp(min=1) if skipped else 1
    return Targets(ids_BL, items * kept, given / items)


def _count(ids_BL: Tensor) -> Tensor:
    return (ids_BL != IGNORE_INDEX).sum()


def _without_first(labels_BL: Tensor, context: RoutingContext, skipped: int) -> Tensor:
    """Labels without the first `skipped`; with a prompt, which is pooled instead, without those inside it."""
    positions_BL = context.new_positions()
    if labels_BL.shape != positions_BL.shape:
        raise ValueError("logits_to_keep: with first_segment=skip_loss the loss needs all positions; give 0")
    seen: Tensor | int = skipped
    if (lengths_B := context.prompt_lengths_B) is not None:
        seen = (lengths_B if context.prompt_routed else lengths_B.clamp(max=skipped))[:, None] - 1
    return labels_BL.masked_fill(positions_BL < seen, IGNORE_INDEX)


def add_z_loss(
    loss: Tensor, logits_BLV: Tensor, targets_BL: Tensor, items: Tensor | int, z: float
) -> CallLoss:
    """Add the z-loss: z · log²Z of each target's logits (PaLM section 5), summed and divided by `items`."""
    if z == 0:
        return loss_parts(loss)
    squares_BL = logits_BLV.float().logsumexp(-1).square()
    z_loss = z * (squares_BL * (targets_BL != IGNORE_INDEX)).sum() / items
    return loss_parts(loss + z_loss, z_loss)


def loss_of_rows(
    states: Tensor, head: Tensor, bias: Tensor | None, targets: Tensor, exact: torch.dtype, z: float
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The summed loss of some rows, the z-loss in it, and the gradient of the loss by the logits.

    Losses have the dtype `exact`. Compiled, it reads the logits without copying them to that dtype.
    """
    counted = (targets != IGNORE_INDEX)[:, None]
    target, counts = targets[:, None].where(counted, 0), counted.to(exact)
    logits = nn.functional.linear(states, head, bias)
    log_probabilities = logits.log_softmax(-1, dtype=exact)
    of_target = log_probabilities.gather(1, target)
    loss, z_loss = -(of_target * counts).sum(), None
    scale = counts
    if z:
        log_z = logits.gather(1, target) - of_target
        z_loss = z * (log_z.square() * counts).sum()
        loss = loss + z_loss
        scale = scale * (1 + 2 * z * log_z)
    d_target = of_target.exp() * scale - counts  # subtracted before rounding: it may be close to 0
    d_logits = torch.mul(log_probabilities.exp_(), scale, out=logits)  # in the memory of the logits
    return loss, z_loss, d_logits.scatter_(1, target, d_target.to(d_logits.dtype))


def fused_loss(
    states_BLD: Tensor,
    head_VD: Tensor,
    targets_BL: Tensor,
    num_items: Tensor | int,
    bias_V: Tensor | None = None,
    most_logits: int = MOST_LOGITS,
    z: float = 0.0,
    of_rows: LossOfRows = loss_of_rows,
) -> CallLoss:
    """Cross-entropy of next tokens, summed and divided by `num_items`, holding `most_logits` at once.

    It includes a z-loss of the logits with weight `z`. Its naive twin is the head, with its bias, followed by
    transformers' loss and `add_z_loss`. Products have autocast's dtype, sums are float32. Since 2.13
    torch has the same as `linear_cross_entropy`.
    """
    dtype = product_dtype(states_BLD)
    rows = rows_at_once(len(head_VD), most_logits)
    arguments = (states_BLD.flatten(0, 1), head_VD, bias_V, targets_BL.flatten(), dtype, rows, z, of_rows)
    # Autocast would copy the logits to float32 first.
    with torch.autocast(states_BLD.device.type, enabled=False):
        total, z_total = _SummedLoss.apply(*arguments)
    return loss_parts(total / num_items, z_total / num_items if z else None)


def rows_at_once(vocabulary: int, most_logits: int = MOST_LOGITS) -> int:
    """How many rows of logits are held at once: at least 1, and whole tiles of a matrix product."""
    rows = max(1, most_logits // vocabulary)
    return rows if rows < TILE else rows // TILE * TILE


class _SummedLoss(torch.autograd.Function):
    """The summed loss. Forward also computes the gradients, so that no logits are kept or computed twice."""

    @staticmethod
    def forward(
        ctx: Any,
        states_MD: Tensor,
        head_VD: Tensor,
        bias_V: Tensor | None,
        targets_M: Tensor,
        dtype: torch.dtype,
        rows: int,
        z: float,
        of_rows: LossOfRows,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(dtype, torch.float32)
        head, bias = aligned_head(head_VD, bias_V, dtype)
        d_states, d_head = torch.empty_like(states_MD), torch.zeros_like(head, dtype=exact)
        d_bias = None if bias_V is None else torch.zeros(len(head), dtype=exact, device=head.device)
        total, z_total = (torch.zeros((), dtype=exact, device=head.device) for _ in range(2))
        parts = (each.split(rows) for each in (states_MD, targets_M, d_states))
        for states, targets, d_states_here in zip(*parts, strict=True):
            loss, z_loss, d_logits = of_rows(states.to(dtype), head, bias, targets, exact, z)
            total += loss
            if z_loss is not None:
                z_total += z_loss
            d_states_here.copy_(d_logits @ head)
            d_head += d_logits.mT @ states.to(dtype)
            if d_bias is not None:
                d_bias += d_logits.sum(0)
            del d_logits  # before the next rows' gradient is made
        V = len(head_VD)
        ctx.save_for_backward(d_states, d_head[:V], None if d_bias is None else d_bias[:V])
        ctx.mark_non_differentiable(z_total)
        return total, z_total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if each is None else each * d_total for each in ctx.saved_tensors)
        return (*gradients, None, None, None, None, None)


def token_losses(
    states_BLD: Tensor, head: nn.Module, targets_BL: Tensor, vocab_size: int, most_logits: int = MOST_LOGITS
) -> Tensor:
    """Cross-entropy (B, L) of each target, float32, 0 if ignored; holds `most_logits` at once.

    Its naive twin holds the logits of all positions.
    """
    size = rows_at_once(vocab_size, most_logits)
    parts = zip(states_BLD.flatten(0, 1).split(size), targets_BL.flatten().split(size), strict=True)
    losses = [
        nn.functional.cross_entropy(
            head(states).float(), targets, ignore_index=IGNORE_INDEX, reduction="none"
        )
        for states, targets in parts
    ]
    return torch.cat(losses).view_as(targets_BL)
