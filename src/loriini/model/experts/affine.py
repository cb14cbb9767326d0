"""Affine maps that apply stacked weights to states: the products under every kind of experts.

An FFN is written once in terms of `Affine`. The functions here decide which weights a map applies: one
expert's, each unit's merged ones, those of each row's expert, or all experts'.

Axes: N units, S slots in a unit, M tokens, P pairs of a token and an expert it selected, E experts, D input
width, O output width, X parameters of a matrix, flattened.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from loriini.model.kernels.grouped import grouped_linear
from loriini.model.kernels.products import Kept, linear_by_unit, merged_linear, product_dtype


class Affine(Protocol):
    """A way of applying weights to states: x Wᵀ + b."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
        """States (…, D) to (…, O)."""


def affine_by_unit(x_NSD: Tensor, weight_NOD: Kept, bias_NO: Tensor | None = None) -> Tensor:
    """Each unit times its own weight, plus its own bias; (N, S, O)."""
    y_NSO = linear_by_unit(x_NSD, weight_NOD)
    return y_NSO if bias_NO is None else y_NSO + bias_NO[:, None]


class WeightAndGrad(NamedTuple):
    """Stacked weights and, if given, their float32 gradient so far, to which a merge's backward pass adds.

    Megatron calls this gradient `main_grad`.
    """

    weight_E: Tensor
    main_grad_EX: Tensor | None


def affine_by_merging(gates_NE: Tensor) -> Callable[..., Tensor]:
    """An affine map of each unit by its merged weights and biases, which the backward pass merges again."""

    def affine(x_NSD: Tensor, weight: WeightAndGrad, bias: WeightAndGrad | None = None, /) -> Tensor:
        weight_EOD, main_grad_EX = weight
        dtype = product_dtype(weight_EOD)
        y_NSO: Tensor = merged_linear(x_NSD.to(dtype), gates_NE.to(dtype), weight_EOD, main_grad_EX)
        if bias is None:
            return y_NSO
        return y_NSO + (gates_NE.to(dtype) @ bias.weight_E.to(dtype))[:, None]

    return affine


def affine_by_summing(gates_ME: Tensor) -> Affine:
    """An affine map of each token as by merged weights, but as a sum: Σ_i e_i (x W_iᵀ + b_i)."""

    def affine(x_MD: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
        gates_EM1 = gates_ME.T.to(x_MD.dtype)[:, :, None]
        y_MO = ((gates_EM1 * x_MD) @ weight_EOD.mT).sum(0)
        return y_MO if bias_EO is None else y_MO + gates_ME.to(bias_EO.dtype) @ bias_EO

    return affine


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
    """Every expert's affine map of every token: states (M, D), or one per expert (M, E, D), to (M, E, O)."""
    if x.dim() == 2 and weight_EOD.is_contiguous():  # one product for all experts
        y_MEO = linear(x, weight_EOD.flatten(0, 1)).unflatten(-1, weight_EOD.shape[:2])
    else:
        x_EMD = x.expand(len(weight_EOD), -1, -1) if x.dim() == 2 else x.transpose(0, 1)
        y_MEO = torch.bmm(x_EMD, weight_EOD.mT).transpose(0, 1)
    return y_MEO if bias_EO is None else y_MEO + bias_EO
