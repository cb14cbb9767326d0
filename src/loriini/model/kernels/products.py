"""Products of each unit with its own weight, and of units with merges of their experts' weights.

Axes: N units, S slots in a unit, E experts, D input width, O output width, X parameters of a matrix,
flattened.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, linear, pad

from loriini.common.hardware import has_amx
from loriini.model.kernels import merge_kernels

Kept = Tensor | tuple[Tensor, ...]
"""Units' weights (N, …), or a tuple of each unit's matrix in oneDNN's layout (`keep`)."""


def product_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of products with a weight: autocast's, else its own."""
    device = weight.device.type
    casts = device != "meta" and torch.is_autocast_enabled(device)  # "meta" has no autocast
    return torch.get_autocast_dtype(device) if casts else weight.dtype


ALIGNED = {"cuda": 64}
"""By device: the logits of a row are a multiple of this. A GPU's products are slow if rows of 16-bit numbers
do not begin at multiples of 16 bytes, as with GPT-2's vocabulary of 50,257."""


def aligned_head(head_VD: Tensor, bias_V: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """A head and its bias in `dtype`, padded to a multiple of ALIGNED by rows whose logits are -inf."""
    more = -len(head_VD) % ALIGNED.get(head_VD.device.type, 1)
    if not more:
        return head_VD.to(dtype), None if bias_V is None else bias_V.to(dtype)
    bias_V = head_VD.new_zeros(len(head_VD)) if bias_V is None else bias_V
    return pad(head_VD.to(dtype), (0, 0, 0, more)), pad(bias_V.to(dtype), (0, more), value=-torch.inf)


def linear_by_unit(x_NSD: Tensor, weight_NOD: Kept) -> Tensor:
    """x Wᵀ for each unit with its own weight; (N, S, O), in the weight's dtype."""
    if not isinstance(weight_NOD, Tensor):
        return _packed_linear(x_NSD, weight_NOD)
    x_NSD = x_NSD.to(weight_NOD.dtype)
    if x_NSD.shape[0] == 1:  # in bfloat16 on a CPU a batched product of one matrix is many times slower
        return linear(x_NSD[0], weight_NOD[0])[None]
    y_NSO: Tensor = BatchedLinear.apply(x_NSD, weight_NOD)
    return y_NSO


def linear_by_unit_twin(x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
    """The naive twin of `linear_by_unit`: one product a unit."""
    return torch.stack([linear(x_SD.to(w.dtype), w) for x_SD, w in zip(x_NSD, weight_NOD, strict=True)])


def keep(weights_N: Kept) -> Kept:
    """Units' weights (N, O, D) for many calls of `linear_by_unit` without gradients; biases are unchanged.

    On a CPU in bfloat16, oneDNN would lay a weight out again in each product. Laying it out once takes as
    long as the products of about 6 tokens, and cuts the time of a product of one token to two thirds.
    """
    if not isinstance(weights_N, Tensor) or weights_N.dim() < 3 or not _in_bfloat16_on_cpu(weights_N):
        return weights_N
    if torch.compiler.is_compiling() or not torch.backends.mkldnn.is_available():
        return weights_N
    return tuple(torch.ops.mkldnn._reorder_linear_weight(weight_OD, 1) for weight_OD in weights_N)


def _packed_linear(x_NSD: Tensor, weights: Sequence[Tensor]) -> Tensor:
    product = torch.ops.mkldnn._linear_pointwise
    x_NSD = x_NSD.bfloat16()
    return torch.stack([product(x, w, None, "none", [], "") for x, w in zip(x_NSD, weights, strict=True)])


class BatchedLinear(torch.autograd.Function):
    """x Wᵀ by unit, whose weight gradient has the weight's layout; autograd's would need a copy."""

    @staticmethod
    def forward(ctx: Any, x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
        """The products (N, S, O)."""
        ctx.save_for_backward(x_NSD, weight_NOD)
        return batched_linear(x_NSD, weight_NOD)

    @staticmethod
    def backward(ctx: Any, dy_NSO: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of states and weights."""
        return batched_linear_gradients(dy_NSO, *ctx.saved_tensors)


def batched_linear(x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
    """x Wᵀ by unit; (N, S, O), in memory as columns (N, O, S) if these are faster and O > D."""
    if not columns_are_fast(x_NSD):
        return x_NSD @ weight_NOD.mT
    y_NSO = (weight_NOD @ x_NSD.mT).mT
    return y_NSO if weight_NOD.shape[1] > weight_NOD.shape[2] else y_NSO.contiguous()


def batched_linear_gradients(dy_NSO: Tensor, x_NSD: Tensor, weight_NOD: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of states and weights; the states' has the layout of the states."""
    columns = columns_are_fast(x_NSD) and not x_NSD.is_contiguous()
    dx_NSD = (weight_NOD.mT @ dy_NSO.mT).mT if columns else dy_NSO @ weight_NOD
    return dx_NSD, dy_NSO.mT @ x_NSD


AMX = has_amx()


def columns_are_fast(x: Tensor) -> bool:
    """Whether units' products are faster with states as columns: in bfloat16 on a CPU with AMX.

    oneDNN's batched products take half the time there if the larger factor is first and not transposed;
    without AMX they take 5 to 100 % longer.
    """
    return AMX and _in_bfloat16_on_cpu(x)


def _in_bfloat16_on_cpu(x: Tensor) -> bool:
    return x.dtype == torch.bfloat16 and x.device.type == "cpu"


def merged_weight(gates_NE: Tensor, weight_E: Tensor, main_grad_EX: Tensor | None = None) -> Tensor:
    """Σ_i e_i W_i of each unit, for weights (E, …): (N, …).

    The backward pass adds the experts' gradient to `main_grad_EX` if it is given: float32, flattened.
    """
    dtype = product_dtype(weight_E)
    gates_NE, weight_EX = gates_NE.to(dtype), weight_E.to(dtype).flatten(1)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        merged_NX: Tensor = merge_kernels.merge(gates_NE, weight_EX, main_grad_EX)
    elif gates_NE.shape[0] == 1 and weight_E.dim() == 3 and _in_bfloat16_on_cpu(weight_EX):
        return sum_rows(gates_NE[0], weight_E.to(dtype))[None]
    else:  # calling an operator takes 0.1 ms, three times a layer
        merged_NX = gates_NE @ weight_EX
    return merged_NX.unflatten(-1, weight_E.shape[1:])


def sum_rows(gates_E: Tensor, weight_EOD: Tensor) -> Tensor:
    """Σ_i e_i W_i (O, D), row by row by `embedding_bag`; faster than a product in bfloat16 on a CPU.

    Its naive twin is the product `gates @ weights`.
    """
    experts, outputs, _ = weight_EOD.shape
    rows_OE = torch.arange(experts * outputs, dtype=torch.int32).view(experts, outputs).T.contiguous()
    weights_OE = gates_E.expand(outputs, -1).contiguous()
    return embedding_bag(rows_OE, weight_EOD.flatten(0, 1), mode="sum", per_sample_weights=weights_OE)


@torch.library.custom_op("loriini::merged_linear", mutates_args=())
def merged_linear(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    """Each unit times its own merge of the experts' weights, in the states' dtype; (N, S, O).

    In the backward pass the experts' gradient is added to `main_grad_EX` if it is given, as in `merge`. An
    operator of its own, since torch.compile would keep the merge instead of recomputing it.
    """
    return batched_linear(x_NSD, _merge(gates_NE, weight_EOD.to(gates_NE.dtype)))


@merged_linear.register_fake
def _(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    return batched_linear(x_NSD, x_NSD.new_empty(x_NSD.shape[0], *weight_EOD.shape[1:]))  # in its own layout


def _merge(gates_NE: Tensor, weight_EOD: Tensor) -> Tensor:
    return (gates_NE @ weight_EOD.flatten(1)).unflatten(-1, weight_EOD.shape[1:])


def _recompute_merge(ctx: Any, dy_NSO: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
    """The gradients of states, gates and weights, from a second merge."""
    x_NSD, gates_NE, weight_EOD, main_grad_EX = ctx.saved_tensors
    cast_EOD = weight_EOD.to(gates_NE.dtype)
    dx_NSD, dmerged_NOD = batched_linear_gradients(dy_NSO, x_NSD, _merge(gates_NE, cast_EOD))
    dgates_NE, dweight_EX = merge_kernels.gradients(
        dmerged_NOD.flatten(1), gates_NE, cast_EOD.flatten(1), main_grad_EX
    )
    if dweight_EX is None:
        return dx_NSD, dgates_NE, None, None
    return dx_NSD, dgates_NE, dweight_EX.view_as(weight_EOD).to(weight_EOD.dtype), None


merged_linear.register_autograd(_recompute_merge, setup_context=merge_kernels.save_inputs)
