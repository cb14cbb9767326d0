"""Copies of the experts' weights in the dtype of computation, made once a step.

Autocast casts a view of a parameter whenever it is used, so experts would be cast in every micro-batch, and
their gradients cast back before they are added.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from loriini.model.experts.stacked import Experts
from loriini.model.kernels import merge_kernels
from loriini.model.modeling import LoriiniForCausalLM


@contextmanager
def experts_cast_once(model: LoriiniForCausalLM, dtype: torch.dtype | None) -> Iterator[None]:
    """While inside, experts compute on copies of their float32 weights in `dtype`; None: on the weights.

    Every backward pass adds the copies' gradients to the weights' `.grad` in float32. The weights must not
    change meanwhile. Sharded experts are not cast here: FSDP casts what it gathers. Nor are merged experts
    with `recompute_merge`, to save memory: copies of all layers would stay for the step. Where the kernel for
    merges runs, its backward pass adds to `.grad` itself, if that is contiguous.
    """
    if dtype is None:
        yield
        return
    merges, recomputes = model.config.merges, model.config.recompute_merge
    with ExitStack() as stack:
        for experts in (module for module in model.modules() if isinstance(module, Experts)):
            weights = {n: w for n in experts.width_dims if _is_castable(w := getattr(experts, n))}
            copies = {} if merges and recomputes else {n: _copy(w, dtype) for n, w in weights.items()}
            added_to = {
                name: gradient.view(len(gradient), -1)
                for name, weight in weights.items()
                if merges and merge_kernels.adds_gradient(weight, dtype)
                if (gradient := _gradient(weight)).is_contiguous()
            }
            stack.enter_context(experts.computing_on(copies, added_to))
        yield


def _is_castable(weight: Tensor) -> bool:
    plain = isinstance(weight, nn.Parameter) and not isinstance(weight, DTensor)
    return plain and weight.requires_grad and weight.dtype == torch.float32


def _copy(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in `dtype`, a leaf whose gradient is added to the weight's after each backward pass."""
    copy = weight.detach().to(dtype).requires_grad_()

    def move_gradient(copy: Tensor) -> None:
        gradient, copy.grad = copy.grad, None
        if gradient is None:  # the merge's backward pass added it to the weight's
            return
        if weight.grad is None:
            weight.grad = gradient.to(weight.dtype)
        else:
            weight.grad += gradient

    copy.register_post_accumulate_grad_hook(move_gradient)
    return copy


def _gradient(weight: Tensor) -> Tensor:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad
