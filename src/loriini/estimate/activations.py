"""What a micro-batch keeps for its backward pass, counted without computing anything.

The model runs forward on tensors that have shapes but no contents, and what autograd would save is added up:
for every design and block, and as fast for the largest model as for the smallest.
"""

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.configuration import BLOCK_SIZES


@dataclass(frozen=True)
class Footprint:
    """Bytes that one micro-batch keeps of every layer, and outside the layers.

    `merged` is the part of a layer's that is weights of merged experts, and `merging` what these take while a
    layer is computed, whether they are kept or made again; `boundary` are the states between two
    layers, all that activation checkpointing keeps of one. `logits` are the gradients of those.
    """

    layer: int
    merged: int
    merging: int
    boundary: int
    rest: int
    logits: int

    def activations(self, layers: int, checkpointing: bool) -> int:
        """All of it at its peak; with activation checkpointing one layer at a time is made again."""
        kept = layers * self.boundary + self.layer if checkpointing else layers * self.layer
        return self.rest + kept

    def working(self, checkpointing: bool) -> int:
        """The largest gradients on their way besides: of the logits, or of a layer's merged weights.

        With activation checkpointing those of the logits are gone before a layer is made again.
        """
        return max(self.logits - (self.layer if checkpointing else 0), self.merging)


def footprint(
    config: LoriiniConfig, instances: int, length: int, dtype: torch.dtype, fused_loss: bool = False
) -> Footprint:
    """What so many instances keep, computed in `dtype` over float32 weights."""
    merging = merged_parameters(config, instances, length) * dtype.itemsize
    logits = 0 if fused_loss else instances * length * config.vocab_size * (4 + dtype.itemsize)
    one, two = (_saved_at_depth(config, layers, instances, length, dtype, fused_loss) for layers in (1, 2))
    return Footprint(
        layer=two - one,
        merged=0 if config.recompute_merge else merging,
        merging=merging,
        boundary=instances * length * config.hidden_size * 4,
        rest=one - (two - one),
        logits=logits,
    )


def merged_parameters(config: LoriiniConfig, instances: int, length: int) -> int:
    """Parameters of the FFNs that a layer merges for so many instances: one for each of their units."""
    if config.num_experts == 1 or config.routing.combination != "parameters":
        return 0
    units = -(-length // config.routing.segment_length) if config.routing.segmented else 1
    return instances * units * BLOCK_SIZES[config.block](config).expert


def saved_bytes(model: nn.Module, forward: Callable[[], Any]) -> int:
    """The bytes that autograd saves in `forward`, each storage once, parameters and buffers left out."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = forward()
    del kept
    return sum(storage.nbytes() for storage in saved.values())


def _saved_at_depth(
    config: LoriiniConfig, layers: int, instances: int, length: int, dtype: torch.dtype, fused_loss: bool
) -> int:
    """What a model of so many layers saves. The copies of weights that autocast makes are left out."""
    shallow = copy(config)
    shallow.num_hidden_layers = layers
    pairs = round(instances * length * config.experts_per_token)
    cast = torch.autocast("cpu", dtype) if dtype != torch.float32 else nullcontext()
    with FakeTensorMode(), StandIns(pairs), cast:
        model = LoriiniForCausalLM(shallow).train()
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name and not shallow.tie_word_embeddings:
                parameter.data = parameter.data.to(dtype)
        ids = torch.zeros(instances, length, dtype=torch.long)
        labels = torch.zeros(instances, dtype=torch.long)
        inputs = {"shift_labels": ids, "routing_labels": labels, "skip_logits": fused_loss}
        return saved_bytes(model, lambda: model(ids, **inputs))


class StandIns(TorchFunctionMode):
    """Replaces, while it is on, what needs contents by what has the same shapes and saves the same.

    `pairs` is how many (token, expert) pairs selection makes: known, though not which.
    """

    def __init__(self, pairs: int) -> None:
        super().__init__()
        self.pairs = pairs

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of tensors."""
        kwargs = kwargs or {}
        if func is Tensor.nonzero:
            return tuple(torch.zeros(self.pairs, dtype=torch.long) for _ in range(args[0].dim()))
        if func is torch._grouped_mm:  # the rows are some expert's, whichever
            return args[0] @ args[1][0]
        if func is scaled_dot_product_attention:  # in training, causality needs no mask
            kwargs = {**kwargs, "attn_mask": None, "is_causal": True}
        if func in (Tensor.__bool__, Tensor.__int__):
            return False if func is Tensor.__bool__ else 0
        return func(*args, **kwargs)
