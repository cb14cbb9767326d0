"""What a micro-batch keeps for its backward pass, counted without computing anything.

Models of one and of two layers run forward on fake tensors, which have shapes but no contents, and the bytes
that autograd would save are added up: for every design and block, and as fast for large models as for small.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.configuration import BLOCK_SIZES
from loriini.parallel.sharding import local_part

READS_VALUES = ("random", "label")
"""Scorers that read numbers from tensors, which fake ones do not hold; a frozen scorer is counted instead.

Its decisions have the same shapes. Where labels route, it adds the states that a router would keep.
"""


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes that one micro-batch keeps for its backward pass."""

    layer: int
    """Of each layer."""
    merged: int
    """The part of `layer` that is merged experts' weights."""
    merging: int
    """Merged experts' weights while a layer is computed, whether they are kept or merged again."""
    boundary: int
    """The states between two layers, all that activation checkpointing keeps of a layer."""
    rest: int
    """Outside the layers."""
    logits: int
    """Gradients of the logits."""

    def kept(self, layers: int, checkpointing: bool) -> int:
        """All of it at its peak; with activation checkpointing one layer at a time is recomputed."""
        of_layers = layers * self.boundary + self.layer if checkpointing else layers * self.layer
        return self.rest + of_layers

    def transient(self, checkpointing: bool) -> int:
        """The largest transient gradients: of the logits, or of a layer's merged weights.

        With activation checkpointing those of the logits are freed before a layer is recomputed.
        """
        return max(self.logits - (self.layer if checkpointing else 0), self.merging)


def count_activations(
    config: LoriiniConfig, instances: int, length: int, dtype: torch.dtype, fused_loss: bool = False
) -> ActivationBytes:
    """What a micro-batch of `instances` keeps, computed in `dtype` over float32 weights."""
    merging = merged_parameters(config, instances, length) * dtype.itemsize
    logits = 0 if fused_loss else instances * length * config.vocab_size * (4 + dtype.itemsize)
    one, two = (_saved_at_depth(config, layers, instances, length, dtype, fused_loss) for layers in (1, 2))
    return ActivationBytes(
        layer=two - one,
        merged=0 if config.recompute_merge else merging,
        merging=merging,
        boundary=instances * length * config.hidden_size * 4,
        rest=one - (two - one),
        logits=logits,
    )


def merged_parameters(config: LoriiniConfig, instances: int, length: int) -> int:
    """Parameters of the FFNs that a layer merges for `instances`: one FFN for each of their units."""
    if config.num_experts == 1 or config.routing.combination != "parameters":
        return 0
    units = -(-length // config.routing.segment_length) if config.routing.segmented else 1
    return instances * units * BLOCK_SIZES[config.block](config).expert


def saved_bytes(model: nn.Module, forward: Callable[[], Any]) -> int:
    """The bytes that autograd saves in `forward`, each storage once, without parameters and buffers."""
    own = {local_part(t).untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = forward()
    del out
    return sum(storage.nbytes() for storage in saved.values())


def _saved_at_depth(
    config: LoriiniConfig, layers: int, instances: int, length: int, dtype: torch.dtype, fused_loss: bool
) -> int:
    """What a model of `layers` layers saves, without the copies of weights that autocast makes."""
    shallow = copy(config)
    shallow.num_hidden_layers = layers
    if config.routing.scorer in READS_VALUES:
        shallow.routing = replace(config.routing, scorer="frozen")
    pairs = round(instances * length * config.experts_per_token)
    cast = torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext()
    with FakeTensorMode(), KnownShapes(pairs), cast:
        model = LoriiniForCausalLM(shallow).train()
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name and not shallow.tie_word_embeddings:
                parameter.data = parameter.data.to(dtype)
        ids = torch.zeros(instances, length, dtype=torch.long)
        return saved_bytes(model, lambda: model(ids, shift_labels=ids, skip_logits=fused_loss))


class KnownShapes(TorchFunctionMode):
    """Replaces operations whose shapes depend on values by others that save as much, of known shapes.

    `pairs` is the number of (token, expert) pairs that selection makes.
    """

    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.nonzero:
            return tuple(torch.zeros(self.pairs, dtype=torch.long) for _ in range(args[0].dim()))
        if func is torch._grouped_mm:  # as if all rows belonged to one expert
            return args[0] @ args[1][0]
        if func is scaled_dot_product_attention:  # causal attention needs no mask in training
            kwargs = {**kwargs, "attn_mask": None, "is_causal": True}
        return func(*args, **kwargs)
