"""The cache of a routed model: keys and values, and what the routing of later tokens needs."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from loriini.routing import RoutingConfig
from loriini.routing.pooling import routing_states
from loriini.routing.unit import RoutingContext, UnitLayout


class RoutedCacheLayer(DynamicLayer):
    """A layer's keys and values, and the tensors that route its later tokens.

    `kept` holds batch-first tensors, which are reordered and cropped with the keys: `prompt` (B, 1, D), the
    pooled state of a prompt, or `states` (B, H, D), the mixture's inputs of all cached tokens;
    `prompt_lengths` (B,), in the first layer only; and a prompt's merged FFN, by the names of its weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Tensor] = {}

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)
        self._map(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._map(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._map(lambda x: x[indices])

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; a prompt's decision stays while any token does."""
        super().crop(tokens_to_remove)
        if self.get_seq_length() == 0:
            self.kept = {}
        elif "states" in self.kept:
            self.kept["states"] = self.kept["states"][:, : self.get_seq_length()]

    def reset(self) -> None:
        """Empty the cache; keys are dropped, because zeroed ones would still count as tokens."""
        self.keys = self.values = None
        self.is_initialized = False
        self.kept = {}

    def _map(self, function: Callable[[Tensor], Tensor]) -> None:
        self.kept = {name: function(tensor) for name, tensor in self.kept.items()}

    def routing_states(
        self, x_BLD: Tensor, context: RoutingContext, design: RoutingConfig, layout: UnitLayout
    ) -> Tensor:
        """The states (B, U, D) that route the units of this call, cached tokens included in their means."""
        if not design.pooled:
            return x_BLD
        if design.unit != "token" and context.prompt_routed:
            if "prompt" not in self.kept:
                self.kept["prompt"] = routing_states(x_BLD, context, design, layout)
            return self.kept["prompt"]
        states = self.kept.get("states")
        self.kept["states"] = x_BLD if states is None else torch.cat([states, x_BLD], dim=1)
        return routing_states(self.kept["states"], context, design, layout)


def prepare_cache(cache: Cache | None, num_layers: int) -> None:
    """Give an empty cache routed layers. ValueError for a cache that another model filled."""
    if cache is None:
        return
    routed = cache.layers and all(isinstance(layer, RoutedCacheLayer) for layer in cache.layers)
    if not routed and cache.get_seq_length() > 0:
        raise ValueError("this cache was filled by another model; start from an empty DynamicCache()")
    if not routed:
        cache.layers = [RoutedCacheLayer() for _ in range(num_layers)]
