"""Muon: makes the steps of hidden matrices orthogonal; the rest of a model is trained by AdamW.

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

from loriini.common.hardware import has_bf16
from loriini.parallel.sharding import local_part

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of a x + b x³ + c x⁵; five iterations bring singular values in (0, 1] close to 1."""
SMALLEST_NORM = 1e-7
ADAMW_RMS = 0.2
"""Root mean square of AdamW's steps at a learning rate of 1, as Liu et al. measured it."""
MATRICES = "matrices"
"""The key of a parameter group that says whether Muon updates its parameters."""


class Muon(torch.optim.AdamW):
    """AdamW, but Muon for groups with `matrices`, whose parameters are matrices (M, N) or stacks (E, M, N).

    A matrix has a running mean of its gradients, `exp_avg`, which decays by `momentum`. Its step is that
    mean, one step ahead (Nesterov), made orthogonal and scaled to AdamW's root mean square, so that AdamW's
    rates and weight decay suit it: the steps of `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`.

    As in the fused AdamW, `grad_scale` divides gradients, a `found_inf` of 1 skips the step, and the host
    does not wait for the device.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; returns the loss of `closure` if there is one."""
        with torch.enable_grad():
            loss = closure() if closure else None
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get(MATRICES)]
        try:
            unwrap(torch.optim.AdamW.step)(self)  # without its hooks: this step has them
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
        gradient.masked_fill_(taken == 0, 0)  # a product would keep NaN and infinity
        state["step"] += taken
        mean.lerp_(gradient, (1 - momentum) * taken)
        ahead = gradient.lerp(mean, momentum).to(iteration_dtype(gradient))
        size = lr * ADAMW_RMS * max(parameter.shape[-2:]) ** 0.5 * taken
        weight.mul_(1 - lr * weight_decay * taken)
        weight.addcmul_(orthogonal_part(ahead, parameter), size, value=-1)


def iteration_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrices are made orthogonal: bfloat16 where the hardware multiplies it."""
    return torch.bfloat16 if has_bf16(x.device) else x.dtype


def orthogonal_part(part: Tensor, like: Tensor) -> Tensor:
    """Make matrices (…, M, N) orthogonal; takes and returns this process's part, sharded as `like`.

    Matrices that are split over processes are gathered, and each of these processes makes them orthogonal.
    Where each process holds whole matrices of a stack, nothing is sent.
    """
    if not isinstance(like, DTensor):
        return orthogonal(part)
    mesh, whole = like.device_mesh, whole_matrices(like)
    if whole == like.placements:
        return orthogonal(part)
    sharded = partial(DTensor.from_local, device_mesh=mesh, shape=like.shape, stride=like.stride())
    sent = sharded(part, placements=like.placements)
    found = orthogonal(sent.redistribute(placements=whole).to_local())
    return sharded(found, placements=whole).redistribute(placements=like.placements).to_local()


def whole_matrices(parameter: DTensor) -> tuple[Placement, ...]:
    """The placements of a sharded parameter, with `Replicate` for those that split its matrices."""
    stacked = parameter.dim() == 3
    return tuple(
        placed if stacked and getattr(placed, "dim", None) == 0 else Replicate()
        for placed in parameter.placements
    )


def orthogonal(x: Tensor) -> Tensor:
    """Approximately U Vᵀ of each matrix U S Vᵀ (…, M, N): most singular values end between 0.7 and 1.2.

    Five Newton-Schulz iterations, in the dtype of `x`, on matrices scaled to Frobenius norm 1.
    """
    tall = x.shape[-2] > x.shape[-1]
    y_EMN = x.reshape(-1, *x.shape[-2:])
    y_EMN = y_EMN.mT if tall else y_EMN
    y_EMN = y_EMN / torch.linalg.matrix_norm(y_EMN, keepdim=True).clamp(min=SMALLEST_NORM)
    wide = y_EMN.shape[-1] >= 2 * y_EMN.shape[-2]
    for iterate in (twice, twice, once) if wide else (once,) * 5:
        y_EMN = iterate(y_EMN)
    return (y_EMN.mT if tall else y_EMN).reshape(x.shape)


def once(y_EMN: Tensor) -> Tensor:
    """One iteration: (a + F) y, with the `factors` F of y yᵀ."""
    return torch.baddbmm(y_EMN, factors(y_EMN @ y_EMN.mT), y_EMN, beta=A)


def twice(y_EMN: Tensor) -> Tensor:
    """Two iterations, with 2 M²N + 5 M³ multiplications instead of 4 M²N + 2 M³; in bfloat16 less exact."""
    return torch.baddbmm(y_EMN, factors_of_two(y_EMN @ y_EMN.mT), y_EMN, beta=A * A)


def factors(squares_EMM: Tensor) -> Tensor:
    """F = b S + c S² for S = y yᵀ: an iteration multiplies y by a + F."""
    return torch.baddbmm(squares_EMM, squares_EMM, squares_EMM, beta=B, alpha=C)


def factors_of_two(squares_EMM: Tensor) -> Tensor:
    """The factor of two iterations on y, less a²: (a + F₂) (a + F₁) - a², with F₂ of (a + F₁) S (a + F₁)."""
    first_EMM = factors(squares_EMM)
    half_EMM = torch.baddbmm(squares_EMM, first_EMM, squares_EMM, beta=A)
    second_EMM = factors(torch.baddbmm(half_EMM, half_EMM, first_EMM, beta=A))
    return torch.baddbmm(first_EMM + second_EMM, second_EMM, first_EMM, beta=A)
