"""Muon: the steps of hidden matrices are made orthogonal; the rest of a model has AdamW.

Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks"; scaled to AdamW's steps as
Liu et al. (2025), "Muon is scalable for LLM training", do.

Axes: E matrices of a stack; M rows, N columns.
"""

from collections.abc import Callable
from functools import partial
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Placement, Replicate

from loriini.parallel.sharding import local_part

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
        with torch.enable_grad():
            loss = closure() if closure else None
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get(MATRICES)]
        try:
            unwrap(torch.optim.AdamW.step)(self)  # hooks of a step are called by this one
        finally:
            self.param_groups = groups
        for group in groups:
            for parameter in group["params"] if group.get(MATRICES) else ():
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
        if scale is not None:
            gradient.div_(scale)
        gradient.masked_fill_(taken == 0, 0)  # a product would keep what is not finite
        state["step"] += taken
        mean.lerp_(gradient, (1 - momentum) * taken)
        ahead = orthogonal_part(gradient.lerp(mean, momentum), parameter)
        weight.mul_(1 - lr * weight_decay * taken)
        weight.sub_(lr * ADAMW_RMS * max(parameter.shape[-2:]) ** 0.5 * taken * ahead)


def orthogonal_part(part: Tensor, like: Tensor) -> Tensor:
    """This process's part of matrices (…, M, N) made orthogonal, which are sharded as `like`.

    Matrices that are split over processes are gathered, in the dtype of the iteration, and each of these
    processes makes them orthogonal. Where each holds whole matrices of a stack, nothing is sent.
    """
    if not isinstance(like, DTensor):
        return orthogonal(part)
    mesh, whole = like.device_mesh, whole_matrices(like)
    if whole == like.placements:
        return orthogonal(part)
    sharded = partial(DTensor.from_local, device_mesh=mesh, shape=like.shape, stride=like.stride())
    sent = sharded(part.to(iteration_dtype(part)), placements=like.placements)
    found = orthogonal(sent.redistribute(placements=whole).to_local())
    own = sharded(found, placements=whole).redistribute(placements=like.placements)
    return own.to_local().to(part.dtype)


def whole_matrices(parameter: DTensor) -> tuple[Placement, ...]:
    """The placements of a sharded parameter, except those that split its matrices, which are replicated."""
    stacked = parameter.dim() == 3
    return tuple(
        placed if stacked and getattr(placed, "dim", None) == 0 else Replicate()
        for placed in parameter.placements
    )


def iteration_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrices are made orthogonal: on a GPU bfloat16."""
    return torch.bfloat16 if x.is_cuda else x.dtype


def orthogonal(x: Tensor) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ (…, M, N), nearly: most singular values end between 0.7 and 1.2.

    By Newton and Schulz's iteration on matrices of norm 1, in `iteration_dtype`.
    """
    tall = x.shape[-2] > x.shape[-1]
    y_EMN = x.to(iteration_dtype(x)).reshape(-1, *x.shape[-2:])
    y_EMN = y_EMN.mT if tall else y_EMN
    y_EMN = y_EMN / torch.linalg.matrix_norm(y_EMN, keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        squares_EMM = y_EMN @ y_EMN.mT
        factors_EMM = torch.baddbmm(squares_EMM, squares_EMM, squares_EMM, beta=B, alpha=C)
        y_EMN = torch.baddbmm(y_EMN, factors_EMM, y_EMN, beta=A)
    return (y_EMN.mT if tall else y_EMN).reshape(x.shape).to(x.dtype)
