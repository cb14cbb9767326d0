"""The cache of a routed model: keys and values, and what the routing of later tokens needs."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, QuantizedCache
from transformers.masking_utils import create_causal_mask

from loriini.model.kernels.products import Kept
from loriini.routing import Routing, RoutingConfig
from loriini.routing.unit import RoutingContext, UnitLayout

CACHE = "cache" if "cache" in inspect.signature(create_causal_mask).parameters else "past_key_values"
"""What transformers calls a cache in arguments and outputs: `cache` since 5.24, `past_key_values` before."""


class Decision(NamedTuple):
    """Each sequence's decision for its current unit."""

    logits_BE: Tensor
    gates_BE: Tensor


class RoutedCacheLayer(DynamicLayer):
    """A layer's keys and values, and the routing of each sequence's current unit.

    The state of routing is batch-first, and follows reordering and cropping of the keys:

    - `decision`: the last decision.
    - `decided_at`: how many tokens must stay for the decision to hold, 1 for a prompt's; 0: it does not hold.
    - `merged`: the weights (B, …) of the FFNs merged by that decision, by name; empty: not merged yet.
    - `states` (B, H, D): the layer's input so far, if later tokens are routed by it.

    The first layer also stores, for all layers, the `inference_routing` and the `prompt_lengths` (B,) of the
    first call.
    """

    keys: Tensor | None
    values: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self._forget()

    def _forget(self) -> None:
        self.decision: Decision | None = None
        self.decided_at = 0
        self.merged: Mapping[str, Kept] = {}
        self.states: Tensor | None = None
        self.prompt_lengths: Tensor | None = None
        self.inference_routing: str | None = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)
        self._select(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._select(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._select(lambda x: x[indices])

    def _select(self, function: Callable[[Tensor], Tensor]) -> None:
        """Select sequences; merged FFNs are kept only if no gate changes, as among beams of one prompt."""
        if self.decision is not None:
            selected = Decision(*map(function, self.decision))
            if not torch.equal(selected.gates_BE, self.decision.gates_BE):
                self.merged = {}
            self.decision = selected
        self.states = None if self.states is None else function(self.states)
        self.prompt_lengths = None if self.prompt_lengths is None else function(self.prompt_lengths)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; a segment's decision ends when a token that it was made from is removed.

        A prompt's decision survives any crop that leaves a token; removed prompt tokens must be passed again,
        as assisted generation does.
        """
        removed = tokens_to_remove <= 0  # before transformers 5.24: a positive number of tokens to keep
        length = self.get_seq_length() + tokens_to_remove if removed else tokens_to_remove
        super().crop(tokens_to_remove)
        if length <= 0:
            self._forget()
            return
        self.states = None if self.states is None else self.states[:, :length]
        if length < self.decided_at:
            self.decided_at, self.merged = 0, {}

    def reset(self) -> None:
        """Empty the cache; keys are dropped, because zeroed ones would still count as tokens."""
        self.keys = self.values = None
        self.is_initialized = False
        self._forget()

    def remember(self, x_BLD: Tensor, context: RoutingContext, design: RoutingConfig) -> None:
        """Store a call's states, if the design and mode route later units by them."""
        by_segment = design.segmented and not context.prompt_routed
        if by_segment or design.scorer == "linear_segment":
            self.states = x_BLD if self.states is None else torch.cat([self.states, x_BLD], dim=1)

    def keep_decision(self, routing: Routing, layout: UnitLayout, context: RoutingContext) -> None:
        """Keep the decision of each sequence's last unit; a sequence without tokens keeps its former one."""
        last = Decision(
            _of_last_unit(routing.logits.unflatten(0, routing.unit_shape), layout),
            _of_last_unit(routing.gates.unflatten(0, routing.unit_shape), layout),
        )
        if self.decision is not None and layout.valid_BU is not None:
            there_B1 = layout.valid_BU.any(1, keepdim=True)
            last = Decision(*(torch.where(there_B1, *pair) for pair in zip(last, self.decision, strict=True)))
        self.decision = last
        self.decided_at, self.merged = context.decided_at, {}

    def last_routing(self, layout: UnitLayout) -> Routing:
        """The kept decision, as the routing of a call with one unit per sequence."""
        assert self.decision is not None
        valid = None if layout.valid_BU is None else layout.valid_BU.flatten()
        return Routing(*self.decision, (len(self.decision.gates_BE), 1), valid)


def _of_last_unit(values_BUE: Tensor, layout: UnitLayout) -> Tensor:
    """The values (B, E) of each sequence's last unit with tokens, or of its first if no unit has any."""
    if layout.valid_BU is None:
        return values_BUE[:, -1]
    last_B11 = (layout.valid_BU.sum(1) - 1).clamp(min=0)[:, None, None]
    return values_BUE.take_along_dim(last_B11, dim=1)[:, 0]


def routed_cache(cache: Any, past_key_values: Any, use_cache: bool | None, num_layers: int) -> Cache | None:
    """The cache of a call, under either of its names, with routed layers; a new one for `use_cache` alone.

    ValueError for both names, for a cache that another model filled, and for a quantized or a paged one.
    """
    if cache is not None and past_key_values is not None:
        raise ValueError("cache and past_key_values are two names of one argument; pass one of them")
    cache = past_key_values if cache is None else cache
    if cache is None and use_cache:
        cache = DynamicCache()
    if cache is None:
        return None
    if not isinstance(cache, Cache):
        raise ValueError("continuous batching keeps no routing between its calls; use generate()")
    routed = cache.layers and all(isinstance(layer, RoutedCacheLayer) for layer in cache.layers)
    if isinstance(cache, QuantizedCache) or (not routed and cache.get_seq_length() > 0):
        raise ValueError(
            "this cache is quantized, or was filled by another model or by PEFT's prefix tuning, which a "
            "routed model cannot use (LoRA it can); start from an empty DynamicCache()"
        )
    if not routed:
        cache.layers = [RoutedCacheLayer() for _ in range(num_layers)]
    return cache
