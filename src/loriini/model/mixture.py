"""One MoE layer: its router decides, its experts compute, and the cache carries the decision on."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer

from loriini.model.block import make_experts, make_shared_experts
from loriini.model.configuration import LoriiniConfig
from loriini.model.experts import affine_by_unit
from loriini.routing import Router, Routing
from loriini.routing.router import sources
from loriini.routing.unit import Call, Grid


class RoutedCacheLayer(DynamicLayer):
    """A layer's keys and values, and beside them the state of its routing.

    `routing` holds batch-first tensors: `sources` (B, 1, D), what a prompt's decision came from, or `states`
    (B, H, D), the layer's inputs of all cached tokens; `prompt_lengths` (B,); and a prompt's merged
    FFN, by the names of its weights. They are reordered and cropped with the keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.routing: dict[str, Tensor] = {}

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        super().reorder_cache(beam_idx)
        self._map(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence."""
        super().batch_repeat_interleave(repeats)
        self._map(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some sequences."""
        super().batch_select_indices(indices)
        self._map(lambda x: x[indices])

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; the decision stays while any token does."""
        super().crop(tokens_to_remove)
        if self.get_seq_length() == 0:
            self.routing = {}
        elif "states" in self.routing:
            self.routing["states"] = self.routing["states"][:, : self.get_seq_length()]

    def reset(self) -> None:
        """Forget everything; dropped rather than zeroed, for zeroed keys would still count as tokens."""
        self.keys = self.values = None
        self.is_initialized = False
        self.routing = {}

    def _map(self, function: Callable[[Tensor], Tensor]) -> None:
        self.routing = {name: function(tensor) for name, tensor in self.routing.items()}

    def sources(self, x_BLD: Tensor, call: Call, config: LoriiniConfig, grid: Grid) -> Tensor:
        """What routes the units of this call (B, U, D), given those cached before it."""
        if not config.routing.pooled:
            return x_BLD
        if call.routing == "prompt" and config.routing.unit != "token":
            if "sources" not in self.routing:
                self.routing["sources"] = sources(x_BLD, call, config.routing, grid)
            return self.routing["sources"]
        states = self.routing.get("states")
        self.routing["states"] = x_BLD if states is None else torch.cat([states, x_BLD], dim=1)
        return sources(self.routing["states"], call, config.routing, grid)


class Mixture(nn.Module):
    """An MoE layer: pool → score → select → combine."""

    def __init__(self, config: LoriiniConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        routes = layer_idx == 0 or config.routing.scope == "layer"
        heads = (config.hidden_size, config.num_experts, config.routing, layer_idx)
        self.router = Router(*heads) if routes else None
        self.experts = make_experts(config)
        self.shared = make_shared_experts(config)

    def forward(
        self,
        x_BLD: Tensor,
        call: Call,
        grid: Grid,
        routing: Routing | None = None,
        cache: RoutedCacheLayer | None = None,
    ) -> tuple[Tensor, Routing]:
        """States (B, L, D) to states and decisions; a layer without a router follows `routing`."""
        length, activations = x_BLD.shape[1], self._activations(x_BLD)
        if self.router is not None:
            scored = x_BLD if activations is None else activations
            if cache is None:
                source = sources(scored, call, self.config.routing, grid)
            else:
                source = cache.sources(scored, call, self.config, grid)
            routing = self.router(source, call, grid)
        assert routing is not None
        if self.config.routing.combination == "parameters":
            x_NSD = grid.group(x_BLD).flatten(0, 1)
            y_NSD = self._by_parameters(x_NSD, routing.gates, call, cache)
            y_BLD = grid.ungroup(y_NSD.unflatten(0, (-1, grid.units)), length)
        else:
            low_MER = None
            if activations is not None and self.config.routing.node == "low_rank":
                low_MER = activations.flatten(0, 1)
            gates_ME = self._gates_of_tokens(routing, grid, length)
            y_BLD = self.experts.by_outputs(x_BLD.flatten(0, 1), gates_ME, low_MER).view_as(x_BLD)
        return (y_BLD if self.shared is None else y_BLD + self.shared.single(x_BLD)), routing

    def _activations(self, x_BLD: Tensor) -> Tensor | None:
        """What the experts score themselves by (B, L, E, R), where the design has them do so."""
        if not self.config.scored_by_norm:
            return None
        activations_MER = self.experts.activations(x_BLD.flatten(0, 1), self.config.routing.node)
        return activations_MER.unflatten(0, x_BLD.shape[:2])

    def _gates_of_tokens(self, routing: Routing, grid: Grid, length: int) -> Tensor:
        """The gates (B·L, E) of each token: those of its unit; 0 for padding."""
        gates_BUE = routing.gates.view(*routing.unit_shape, -1)
        gates_BUSE = gates_BUE[:, :, None].expand(-1, -1, grid.slots_per_unit, -1)
        return grid.ungroup(gates_BUSE, length).flatten(0, 1)

    def _by_parameters(
        self, x_NSD: Tensor, gates_NE: Tensor, call: Call, cache: RoutedCacheLayer | None
    ) -> Tensor:
        """Merge and apply; a prompt's FFN is merged once and kept with its cache.

        What is kept never takes more memory than the experts do.
        """
        experts = self.experts
        kept = cache is not None and call.routing == "prompt" and call.batch <= experts.num_experts
        if cache is None or not kept or experts.spread or torch.is_grad_enabled():
            return experts.by_parameters(x_NSD, gates_NE, self.config.recompute_merge)
        if "down_proj" not in cache.routing:
            cache.routing.update(experts.merge(gates_NE))
        return experts.ffn(x_NSD, cache.routing, affine_by_unit)
