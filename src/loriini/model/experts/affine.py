"""Affine maps that apply stacked weights to states: the products under every kind of experts.

An FFN is written once in terms of `Affine`. The functions here decide which weights a map applies: one
expert's, each unit's merged ones, those of each row's expert, or all experts'.

Axes: N units, S slots in a unit, M tokens, P pairs of a token and an expert it selected, E experts, D input
width, O output width, X parameters of a matrix, flattened (`merge_kernels`' P).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from loriini.common.hardware import has_amx
from loriini.model.kernels import merge_kernels
from loriini.model.kernels.bags import linear_by_bags
from loriini.model.kernels.grouped import grouped_linear


class Affine(Protocol):
    """A way of applying weights to states: x Wᵀ + b."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
        """States (…, D) to (…, O)."""


def affine_by_unit(x_NSD: Tensor, weight_NOD: Tensor, bias_NO: Tensor | None = None) -> Tensor:
    """Each unit times its own weight, plus its own bias; (N, S, O)."""
    y_NSO: Tensor = BatchedLinear.apply(x_NSD.to(weight_NOD.dtype), weight_NOD)
    return y_NSO if bias_NO is None else y_NSO + bias_NO[:, None]


def affine_in_blocks(x_NSD: Tensor, weight_NKDW: Tensor, bias_NO: Tensor | None = None) -> Tensor:
    """`affine_by_unit` of weights laid out by `in_blocks`; (N, S, O)."""
    x_NSD = x_NSD.to(weight_NKDW.dtype)
    if x_NSD.shape[1] == 1:
        y_NSO = linear_by_bags(x_NSD[:, 0], weight_NKDW)[:, None]
    else:
        y_NSO = (x_NSD[:, None] @ weight_NKDW).transpose(1, 2).flatten(2)
    return y_NSO if bias_NO is None else y_NSO + bias_NO[:, None]


class WeightAndGrad(NamedTuple):
    """Stacked weights, and the float32 gradients to which a merge's backward pass adds theirs, if any.

    The latter are what Megatron calls `main_grad`.
    """

    weight_E: Tensor
    main_grad_EX: Tensor | None


def affine_by_merging(gates_NE: Tensor) -> Callable[..., Tensor]:
    """An affine map of each unit by the merge of its experts' weights and biases, which is not kept."""

    def affine(x_NSD: Tensor, weight: WeightAndGrad, bias: WeightAndGrad | None = None, /) -> Tensor:
        weight_EOD, main_grad_EX = weight
        dtype = product_dtype(weight_EOD)
        y_NSO: Tensor = merged_linear(x_NSD.to(dtype), gates_NE.to(dtype), weight_EOD, main_grad_EX)
        if bias is None:
            return y_NSO
        return y_NSO + (gates_NE.to(dtype) @ bias.weight_E.to(dtype))[:, None]

    return affine


FEW_TOKENS = 24
"""The most tokens for which summed products are faster with gates laid out by token than by expert and, in
bfloat16 on a CPU without AMX, with states as rows than as columns."""


def affine_by_summing(gates_ME: Tensor) -> Affine:
    """An affine map of each token by the merge of its experts, never formed: Σ_i e_i (x W_iᵀ + b_i)."""
    gates_EM = gates_ME.T if gates_ME.shape[0] <= FEW_TOKENS else gates_ME.T.contiguous()

    def affine(x_MD: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
        gates_EM1 = gates_EM.to(x_MD.dtype)[:, :, None]
        if not sums_are_fast_as_columns(x_MD):
            y_MO = ((gates_EM1 * x_MD) @ weight_EOD.mT).sum(0)
        elif weight_EOD.shape[2] < weight_EOD.shape[1]:  # gates multiply the narrower side
            y_MO = (weight_EOD @ (gates_EM1 * x_MD).mT).sum(0).T
        else:
            y_EOM = linear(weight_EOD.flatten(0, 1), x_MD).unflatten(0, weight_EOD.shape[:2])
            y_MO = (y_EOM * gates_EM1.mT.to(y_EOM.dtype)).sum(0).T
        return y_MO if bias_EO is None else y_MO + gates_ME.to(bias_EO.dtype) @ bias_EO

    return affine


def product_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of products with a weight: autocast's, else its own."""
    device = weight.device.type
    casts = device != "meta" and torch.is_autocast_enabled(device)  # "meta" has no autocast
    return torch.get_autocast_dtype(device) if casts else weight.dtype


def merged_weight(gates_NE: Tensor, weight_E: Tensor, main_grad_EX: Tensor | None = None) -> Tensor:
    """Σ_i e_i W_i of each unit, for weights (E, …): (N, …).

    The backward pass adds the experts' gradient to `main_grad_EX`, whose weights are flat, if it is given.
    """
    dtype = product_dtype(weight_E)
    gates_NE, weight_EX = gates_NE.to(dtype), weight_E.to(dtype).flatten(1)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        merged_NX: Tensor = merge_kernels.merge(gates_NE, weight_EX, main_grad_EX)
    else:  # an operator takes 0.1 ms to call, three times a layer
        merged_NX = merge_kernels.weighted_sum(gates_NE, weight_EX)
    return merged_NX.unflatten(-1, weight_E.shape[1:])


@torch.library.custom_op("loriini::merged_linear", mutates_args=())
def merged_linear(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    """Each unit times its own merge of the experts' weights, in the states' dtype; (N, S, O).

    In the backward pass the experts' gradient is added to `main_grad_EX` if it is given, as in `merge`. An
    operator of its own, since torch.compile would keep the merge instead of recomputing it.
    """
    return batched_linear(x_NSD, _merge(gates_NE, weight_EOD.to(gates_NE.dtype)))


@merged_linear.register_fake
def _(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor, main_grad_EX: Tensor | None) -> Tensor:
    return batched_linear(x_NSD, x_NSD.new_empty(x_NSD.shape[0], *weight_EOD.shape[1:]))  # in its layout


def _merge(gates_NE: Tensor, weight_EOD: Tensor) -> Tensor:
    return merge_kernels.weighted_sum(gates_NE, weight_EOD.flatten(1)).unflatten(-1, weight_EOD.shape[1:])


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


class BatchedLinear(torch.autograd.Function):
    """x Wᵀ by unit, whose weight gradient has the weight's layout; autograd's would have to be copied."""

    @staticmethod
    def forward(ctx: Any, x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
        """The products (N, S, O)."""
        ctx.save_for_backward(x_NSD, weight_NOD)
        return batched_linear(x_NSD, weight_NOD)

    @staticmethod
    def backward(ctx: Any, dy_NSO: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both."""
        return batched_linear_gradients(dy_NSO, *ctx.saved_tensors)


def batched_linear(x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
    """x Wᵀ by unit; (N, S, O), laid out as columns (N, O, S) where these are faster and the wider side."""
    if not columns_are_fast(x_NSD):
        return x_NSD @ weight_NOD.mT
    y_NSO = (weight_NOD @ x_NSD.mT).mT
    return y_NSO if weight_NOD.shape[1] > weight_NOD.shape[2] else y_NSO.contiguous()


def batched_linear_gradients(dy_NSO: Tensor, x_NSD: Tensor, weight_NOD: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of both, that of the states in their layout."""
    columns = columns_are_fast(x_NSD) and not x_NSD.is_contiguous()
    dx_NSD = (weight_NOD.mT @ dy_NSO.mT).mT if columns else dy_NSO @ weight_NOD
    return dx_NSD, dy_NSO.mT @ x_NSD


AMX = has_amx()


def columns_are_fast(x: Tensor) -> bool:
    """Whether units' products are faster with states as columns: in bfloat16 on a CPU with AMX.

    oneDNN's batched products take half the time there if their larger factor comes first, not transposed;
    without AMX they take 5 to 100 % longer.
    """
    return AMX and is_bfloat16_on_cpu(x)


def sums_are_fast_as_columns(x_MD: Tensor) -> bool:
    """Whether summed products are faster with tokens as columns; without AMX, if tokens are many."""
    return (AMX or len(x_MD) > FEW_TOKENS) and is_bfloat16_on_cpu(x_MD)


def is_bfloat16_on_cpu(x: Tensor) -> bool:
    """Whether oneDNN computes the products of `x`."""
    return x.dtype == torch.bfloat16 and x.device.type == "cpu"


def affine_by_expert(experts_P: Tensor, ends_E: Tensor) -> Affine:
    """An affine map of pairs sorted by expert, each by its expert's weight and bias."""

    def affine(x_PD: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
        dtype = product_dtype(weight_EOD)
        y_PO = grouped_linear(x_PD.to(dtype), weight_EOD.to(dtype), ends_E)
        if bias_EO is None:
            return y_PO
        # A product with one-hot rows: the gradient of indexing would add many rows to few experts.
        chosen_PE = one_hot(experts_P, len(bias_EO)).to(bias_EO.dtype)
        return y_PO + chosen_PE @ bias_EO

    return affine


def affine_by_all(x: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
    """Every token by every expert: states (M, D), or one per expert (M, E, D), to (M, E, O)."""
    if x.dim() == 2 and weight_EOD.is_contiguous():  # one product for all experts
        y_MEO = linear(x, weight_EOD.flatten(0, 1)).unflatten(-1, weight_EOD.shape[:2])
    else:
        x_EMD = x.expand(len(weight_EOD), -1, -1) if x.dim() == 2 else x.transpose(0, 1)
        y_MEO = torch.bmm(x_EMD, weight_EOD.mT).transpose(0, 1)
    return y_MEO if bias_EO is None else y_MEO + bias_EO
