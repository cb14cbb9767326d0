"""Muon: the steps of hidden matrices are made orthogonal; the rest of a model has AdamW.

Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks"; scaled to AdamW's steps as
Liu et al. (2025), "Muon is scalable for LLM training", do.

Axes: E matrices of a stack; M rows, N columns.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from loriini.parallel.sharding import copy_part, full_tensor, local_part

A, B, C = 3.4445, -4.7750, 2.0315
"""Of the polynomial a x + b x³ + c x⁵, which in five iterations takes singular values in (0, 1] near 1."""
ITERATIONS = 5
SMALLEST_NORM = 1e-7
ADAMW_RMS = 0.2
"""Root mean square of AdamW's steps at a learning rate of 1, as Liu et al. measured it."""
MATRICES = "matrices"
"""The key of a parameter group that says whether Muon steps its parameters."""


class Muon(torch.optim.AdamW):
    """AdamW, and Muon for groups with `matrices`, whose parameters are matrices (M, N) or stacks (E, M, N).

    A matrix has a running mean of its gradients, `exp_avg`, that keeps `momentum` of itself. Its step is that
    mean, one step ahead (Nesterov), made orthogonal and scaled to AdamW's root mean square, so that learning
    rates and weight decay are AdamW's. Its twin is `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`.

    As in the fused AdamW, `grad_scale` divides gradients and a `found_inf` of 1 skips the step, and nothing
    waits for the device.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; returns the loss of `closure` if there is one."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group[MATRICES]]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            for parameter in group["params"] if group[MATRICES] else ():
                if parameter.grad is not None:
                    self._step_matrices(parameter, **group)
        return loss

    def _step_matrices(
        self, parameter: Tensor, lr: float, momentum: float, weight_decay: float, **_: object
    ) -> None:
        weight, gradient = local_part(parameter), local_part(parameter.grad)
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state["exp_avg"] = torch.zeros_like(parameter)
        mean, scale = local_part(state["exp_avg"]), getattr(self, "grad_scale", None)
        skipped = getattr(self, "found_inf", None)
        taken = torch.ones_like(state["step"]) if skipped is None else 1 - skipped
        gradient = gradient if scale is None else gradient / scale
        gradient = torch.where(
            taken.bool(), gradient, 0
        )  # not a product, which would keep what is not finite
        state["step"] += taken
        mean.lerp_(gradient, (1 - momentum) * taken)
        ahead = orthogonal_part(gradient.lerp(mean, momentum), parameter)
        weight.mul_(1 - lr * weight_decay * taken)
        weight.sub_(lr * ADAMW_RMS * max(parameter.shape[-2:]) ** 0.5 * taken * ahead)


def orthogonal_part(part: Tensor, like: Tensor) -> Tensor:
    """This process's part of matrices (…, M, N) made orthogonal, which are sharded as `like`.

    Matrices of which processes hold parts are gathered, and every process makes them orthogonal; where each
    holds whole matrices of a stack, nothing is sent.
    """
    if not isinstance(like, DTensor) or holds_whole_matrices(like):
        return orthogonal(part)
    sharded = torch.empty_like(like)
    local_part(sharded).copy_(part)
    copy_part(sharded, orthogonal(full_tensor(sharded)))
    return local_part(sharded)


def holds_whole_matrices(parameter: DTensor) -> bool:
    """Whether no matrix of a stack is split over processes."""
    placements = parameter.placements
    return all(
        placed.is_replicate() or (parameter.dim() == 3 and placed.is_shard(0)) for placed in placements
    )


def orthogonal(x: Tensor) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ (…, M, N), nearly: singular values end between about 0.7 and 1.2.

    By Newton and Schulz's iteration on matrices of norm 1; in bfloat16 on a GPU.
    """
    if x.shape[-2] > x.shape[-1]:
        return orthogonal(x.mT).mT
    y = x.bfloat16() if x.is_cuda else x
    y = y / torch.linalg.matrix_norm(y, keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        squares = y @ y.mT
        y = A * y + (B * squares + C * squares @ squares) @ y
    return y.to(x.dtype)
