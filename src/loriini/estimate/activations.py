"""The bytes that a micro-batch keeps for its backward pass, counted without computing anything.

Models of one and of two layers run forward on fake tensors, which have shapes but no contents, and the bytes
that autograd would save are added up. This works for every design and block, and is as fast for large models.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from loriini.common.errors import InputError
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.block import BLOCKS
from loriini.model.loss import fused_loss, rows_at_once
from loriini.parallel.sharding import local_part

READS_VALUES = ("random", "label")
"""Scorers that read values of tensors, which fake ones lack; a frozen scorer is counted in their place.

Its decisions have the same shapes. It also has router states, which label routing lacks: for label routing
the count is slightly too high.
"""


@dataclass(frozen=True)
class UnshardedGradients:
    """Bytes of the unsharded gradients that each process holds under FSDP, until they are reduced."""

    layer: float
    """One layer's gradients, in the dtype of its copies."""
    reduced: float
    """One layer's gradients, in float32 for the reduction."""
    root: float
    """Gradients outside the layers, in float32."""


class Peak(NamedTuple):
    """Bytes of activations (`kept`) and of temporary tensors (`transient`) at their peak."""

    kept: float
    transient: float
    merged: float
    """The part of `kept` that is merged experts' weights."""


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes that one micro-batch keeps for its backward pass."""

    layer: int
    """Bytes of each layer."""
    merged: int
    """The part of `layer` that is merged experts' weights."""
    backward_transient: int
    """Transient bytes of a layer's backward pass, for its merge and its FFN's hidden states."""
    merge_transient_sharded: int
    """Transient bytes of a merge's backward pass under FSDP, where weights have the dtype of computation."""
    boundary: int
    """The states between two layers, all that activation checkpointing keeps of a layer."""
    rest: int
    """Bytes outside the layers."""
    logits: int
    """Transient bytes while the loss is computed."""
    head_gradient: int
    """The part of `rest` that is freed before the layers' backward pass begins."""

    def peak(self, layers: int, checkpointing: bool, unsharded: UnshardedGradients | None = None) -> Peak:
        """The peak, either while the loss is computed or while the gradients of one layer are.

        At the latter, activation checkpointing holds one recomputed layer. FSDP (`unsharded`) also holds the
        layer's whole gradients, and those of the layer above until they are reduced: its peak may be in the
        last layer but one, or at the end, when the gradients outside the layers are computed.
        """
        kept_layer = self.boundary if checkpointing else self.layer
        kept = self.rest + layers * kept_layer
        recomputed = self.layer if checkpointing else 0
        merged = self.merged * (1 if checkpointing else layers)
        peaks = [Peak(kept, self.logits, 0 if checkpointing else merged)]
        if unsharded is None:
            peaks.append(Peak(kept + recomputed - self.head_gradient, self.backward_transient, merged))
        else:
            transient = unsharded.layer + self.merge_transient_sharded
            if self.merged:  # freed while the gradients are made
                transient = max(self.merge_transient_sharded, unsharded.layer - self.merged)
            peaks += [Peak(kept + recomputed, transient, merged), Peak(0, 2 * unsharded.root, 0)]
            if layers > 1:
                freed = 0 if checkpointing else self.merged
                peaks += [Peak(kept + recomputed - kept_layer, transient + unsharded.reduced, merged - freed)]
        return max(peaks, key=lambda peak: peak.kept + peak.transient)


def count_activations(
    config: LoriiniConfig, instances: int, length: int, dtype: torch.dtype
) -> ActivationBytes:
    """The bytes of a micro-batch of `instances`, one document each, computed in `dtype` over float32 weights.

    InputError for a part of an extension that reads values of tensors, which fake tensors lack.
    """
    merged = merged_parameters(config, instances, length) * dtype.itemsize
    try:
        one, two = (_saved_at_depth(config, layers, instances, length, dtype) for layers in (1, 2))
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise InputError(
            "a part of this design reads values of tensors, so that its memory cannot be estimated; train "
            "without an estimate: set --micro_batch_size and, where experts merge, --model.recompute_merge"
        ) from error
    return ActivationBytes(
        layer=two - one,
        merged=0 if config.recompute_merge else merged,
        backward_transient=gradient_bytes(config, merged, instances * length, dtype),
        merge_transient_sharded=merging_bytes(config, merged, dtype.itemsize, cast=False),
        boundary=instances * length * config.hidden_size * 4,
        rest=one - (two - one),
        logits=logits_bytes(config, instances * length, dtype),
        head_gradient=4 * config.hidden_size * config.vocab_size,
    )


def merged_parameters(config: LoriiniConfig, instances: int, length: int) -> int:
    """Parameters of the FFNs that a layer merges for `instances`: one FFN for each of their units."""
    if not config.merges:
        return 0
    units = -(-length // config.routing.unit_length(length))
    return instances * units * config.sizes().expert


def gradient_bytes(config: LoriiniConfig, merged: int, tokens: int, dtype: torch.dtype) -> int:
    """Transient bytes of the backward pass through one layer's FFN, whose merge has `merged` bytes.

    They are the gradient of the FFN's hidden states and the bytes of the merge (`merging_bytes`). Both count
    with `recompute_merge`; without, the former is freed before the latter are needed: the larger counts.
    """
    hidden = round(tokens * config.experts_per_token * config.expert_width) * dtype.itemsize
    merging = merging_bytes(config, merged, dtype.itemsize, cast=dtype != torch.float32)
    return hidden + merging if config.recompute_merge else max(hidden, merging)


def merging_bytes(config: LoriiniConfig, merged: int, itemsize: int, cast: bool) -> int:
    """Transient bytes of the backward pass through one layer's merge into `merged` bytes.

    They are the gradient of one merged matrix, and the gradient of its experts, which is also summed in
    float32 if their weights were `cast` from float32. Kept merged weights are freed as their gradients are
    made, so only the larger of the two counts. Experts that are merged again are also cast again.
    """
    if not merged:
        return 0
    matrices = [name for name in BLOCKS[config.block].experts.width_dims if not name.endswith("bias")]
    share = 1 / len(matrices)  # all of one size
    experts = share * config.num_experts * config.sizes().expert
    of_merged, gradient = share * merged, experts * (itemsize + (4 if cast else 0))
    copy = experts * itemsize if cast else 0
    return round(of_merged + gradient + copy if config.recompute_merge else max(of_merged, gradient))


def logits_bytes(config: LoriiniConfig, tokens: int, dtype: torch.dtype) -> int:
    """Transient bytes of the loss: a part's logits, float32 log-probabilities and cast states; the cast head.

    A CPU copies logits to float32 before it takes their log-probabilities.
    """
    cast = 0 if dtype == torch.float32 else dtype.itemsize
    rows = min(tokens, rows_at_once(config.vocab_size))
    return rows * config.vocab_size * (8 + cast) + (rows + config.vocab_size) * config.hidden_size * cast


def saved_bytes(model: nn.Module, forward: Callable[[], Any]) -> int:
    """The bytes that autograd saves in `forward`, each storage once, without parameters and buffers."""
    own = {local_part(t).untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage
        return tensor.detach()  # an output that its own operation saves would never be freed

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in saved.values())


def _saved_at_depth(
    config: LoriiniConfig, layers: int, instances: int, length: int, dtype: torch.dtype
) -> int:
    """The bytes that a model of `layers` layers saves, without the copies of weights that autocast makes."""
    shallow = copy(config)
    shallow.num_hidden_layers = layers
    shallow.expert_scale = "initializer"  # other scales are measured on real values
    shallow.tie_word_embeddings = False  # so that the head's copy is left out as other weights' are
    if config.routing.scorer in READS_VALUES:
        shallow.routing = replace(config.routing, scorer="frozen")
    cast = torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True), KnownShapes(), cast:
        model = LoriiniForCausalLM(shallow).train()
        model.fused_loss = partial(fused_loss, most_logits=1 << 60)  # in one part, which saves as much
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.data = parameter.data.to(dtype)
        ids = torch.zeros(instances, length, dtype=torch.long)
        return saved_bytes(model, lambda: model(ids, shift_labels=ids, skip_logits=True))


class KnownShapes(TorchFunctionMode):
    """Replaces operations whose output shapes depend on values by others of known shapes that save as much.

    A selection of a varying number of experts selects all. Attention is causal, within one document.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.nonzero:
            return tuple(torch.zeros(args[0].numel(), dtype=torch.long) for _ in range(args[0].dim()))
        if func is torch._grouped_mm:  # as if all rows belonged to one expert
            return args[0] @ args[1][0]
        if func is Tensor.tensor_split:  # likewise, where the kernel does not support the dtype or the widths
            x_PD, ends = args
            return x_PD, *(x_PD[:0] for _ in ends)
        if func is scaled_dot_product_attention:  # so training needs no mask
            kwargs = {**kwargs, "attn_mask": None, "is_causal": True}
        return func(*args, **kwargs)
