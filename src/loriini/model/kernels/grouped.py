"""Products of rows that are sorted by expert, each with its expert's weight.

Axes: P rows, E experts, D input width, O output width, R rows of a window: a group and some beside it.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from loriini.model.kernels.merge_kernels import save_inputs

PARTS = 8
"""Row counts are rounded up to one of this many sizes per power of two.

On a CPU in bfloat16, oneDNN compiles a product for every new number of rows, which takes several times as
long as the product, and keeps the last thousand. The experts' numbers of rows change with every step.
"""


def grouped_linear(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """Rows sorted by expert, each times its expert's weight: x W_eᵀ; (P, O), in the dtype of both.

    `ends_E` (int32) is where each expert's rows end; the last is P. `rounded_groups` computes it in bfloat16
    on a CPU. Otherwise torch's grouped kernel does, if it supports the dtype and rows are multiples of 16
    bytes; else one product per expert or, in a graph, which cannot depend on their rows, `rounded_groups`.
    """
    in_bfloat16, compiling = x_PD.dtype == torch.bfloat16, torch.compiler.is_compiling()
    rounds = in_bfloat16 and x_PD.device.type == "cpu"
    aligned = all(size * x_PD.element_size() % 16 == 0 for size in weight_EOD.shape[1:])
    # torch traces the grouped kernel in bfloat16 only
    supported = in_bfloat16 or (x_PD.dtype != torch.float64 and not compiling)
    if aligned and supported and not rounds:
        return nn.functional.grouped_mm(x_PD, weight_EOD.mT, offs=ends_E)
    if rounds or compiling:
        y_PO: Tensor = rounded_groups(x_PD, weight_EOD, ends_E)
        return y_PO
    return grouped_linear_loop(x_PD, weight_EOD, ends_E)


def grouped_linear_loop(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """The naive twin of the other ways: one product per expert."""
    rows_E = x_PD.tensor_split(ends_E[:-1].cpu().long())
    return torch.cat([x @ w.T for x, w in zip(rows_E, weight_EOD, strict=True)])


@torch.library.custom_op("loriini::rounded_groups", mutates_args=())
def rounded_groups(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """`grouped_linear` by products that have few different numbers of rows.

    A product runs on into the rows of the next experts, whose own products overwrite its results there; near
    the last row it begins before its own rows instead, and only the results of its own rows are kept.
    """
    y_PO = x_PD.new_empty(len(x_PD), weight_EOD.shape[1])
    for expert, start, end in _groups(ends_E):
        first, last = _window(start, end, len(x_PD))
        if first == start:
            torch.mm(x_PD[first:last], weight_EOD[expert].T, out=y_PO[first:last])
        else:
            y_PO[start:end] = (x_PD[first:last] @ weight_EOD[expert].T)[start - first : end - first]
    return y_PO


@rounded_groups.register_fake
def _(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    return x_PD.new_empty(x_PD.shape[0], weight_EOD.shape[1])  # `len` would need its value


@torch.library.custom_op("loriini::group_gradients", mutates_args=())
def group_gradients(dy_PO: Tensor, x_PD: Tensor, ends_E: Tensor) -> Tensor:
    """The gradient of every expert's weight, dY_eᵀ x_e; (E, O, D)."""
    dweight_EOD = x_PD.new_zeros(len(ends_E), dy_PO.shape[1], x_PD.shape[1])
    for expert, start, end in _groups(ends_E):
        first, last = _window(start, end, len(x_PD))
        dy_RO = dy_PO.new_zeros(last - first, dy_PO.shape[1])
        dy_RO[start - first : end - first] = dy_PO[start:end]
        torch.mm(dy_RO.T, x_PD[first:last], out=dweight_EOD[expert])
    return dweight_EOD


@group_gradients.register_fake
def _(dy_PO: Tensor, x_PD: Tensor, ends_E: Tensor) -> Tensor:
    return x_PD.new_empty(ends_E.shape[0], dy_PO.shape[1], x_PD.shape[1])


def _gradients(ctx: Any, dy_PO: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x_PD, weight_EOD, ends_E = ctx.saved_tensors
    of_rows, of_weight, _ = ctx.needs_input_grad
    dy_PO = dy_PO.contiguous()
    dx_PD = rounded_groups(dy_PO, weight_EOD.mT, ends_E) if of_rows else None
    return dx_PD, group_gradients(dy_PO, x_PD, ends_E) if of_weight else None, None


rounded_groups.register_autograd(_gradients, setup_context=save_inputs)


def _groups(ends_E: Tensor) -> Iterator[tuple[int, int, int]]:
    """Each expert that has rows, where they begin, and where they end."""
    start = 0
    for expert, end in enumerate(ends_E.tolist()):
        if end > start:
            yield expert, start, end
        start = end


def _window(start: int, end: int, rows: int) -> tuple[int, int]:
    """A range within `rows` that holds `start` to `end` and has one of few lengths."""
    step = max(1, (1 << (end - start).bit_length() - 1) // PARTS)
    length = min(-(-(end - start) // step) * step, rows)
    first = min(start, rows - length)
    return first, first + length
