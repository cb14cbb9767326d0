"""One MoE layer: a router and its experts."""

from typing import Literal

import torch
from torch import Tensor, nn

from loriini.model.block import make_experts, make_shared_experts
from loriini.model.configuration import LoriiniConfig
from loriini.model.experts.stacked import Experts
from loriini.model.generate.cache import RoutedCacheLayer
from loriini.model.kernels.products import keep
from loriini.routing import Router, Routing
from loriini.routing.pooling import routing_states
from loriini.routing.selection import fixed_counts
from loriini.routing.unit import RoutingContext, UnitLayout

Part = Literal["router", "experts", "rest"]


class Mixture(nn.Module):
    """An MoE layer: pool → score → select → combine."""

    def __init__(self, config: LoriiniConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.num_experts = config, config.num_experts
        routes = layer_idx == 0 or config.design.scope == "layer"
        self.router = Router(config.router_settings(layer_idx)) if routes else None
        self.experts = make_experts(config)
        self.experts_are_local = True
        """Whether this process holds all experts whole, so that merged FFNs can be cached or summed.

        Not an attribute of the experts, where an adapter around them would hide it.
        """
        self.shared = make_shared_experts(config)

    def forward(
        self,
        x_BLD: Tensor,
        context: RoutingContext,
        layout: UnitLayout,
        first_layer_routing: Routing | None = None,
        cache_layer: RoutedCacheLayer | None = None,
    ) -> tuple[Tensor, Routing]:
        """States (B, L, D) to states and routing; a layer without a router uses the first layer's routing."""
        activations = self._activations(x_BLD)
        if self.router is None:
            assert first_layer_routing is not None
            routing = first_layer_routing
        else:
            routing = self._route(x_BLD, activations, context, layout, cache_layer)
        design = self.config.design
        if cache_layer is not None and design.unit != "token" and not context.decided:
            cache_layer.keep_decision(routing, layout, context)
        if self.num_experts == 1:
            y_BLD = self.experts(x_BLD)
        elif design.combination == "parameters":
            y_NSD = self._by_parameters(layout.group(x_BLD).flatten(0, 1), routing.gates, layout, cache_layer)
            y_BLD = layout.ungroup(y_NSD.unflatten(0, (-1, layout.units)), x_BLD.shape[1])
        else:
            known = {} if activations is None else {str(design.node): activations.flatten(0, 1)}
            y_BLD = self._by_outputs(x_BLD, routing, layout, known)
        return (y_BLD if self.shared is None else y_BLD + self.shared(x_BLD)), routing

    def _activations(self, x_BLD: Tensor) -> Tensor | None:
        """The activations (B, L, E, W) by which experts score themselves; None for other designs."""
        if not self.config.scored_by_norm:
            return None
        a_MEW: Tensor = self.experts(x_BLD.flatten(0, 1), Experts.activations, self.config.design.node)
        return a_MEW.unflatten(0, x_BLD.shape[:2])

    def _route(
        self,
        x_BLD: Tensor,
        activations: Tensor | None,
        context: RoutingContext,
        layout: UnitLayout,
        cache_layer: RoutedCacheLayer | None,
    ) -> Routing:
        """This layer's decisions, by the experts' activations if given, else by pooled states."""
        assert self.router is not None
        design = self.config.design
        if cache_layer is not None and self.router.scorer is not None:
            cache_layer.remember(x_BLD, context, design)
        if cache_layer is not None and context.decided:
            return cache_layer.last_routing(layout)
        if self.router.scorer is None:
            states = x_BLD[:, :1].expand(-1, layout.units, -1)  # gates do not depend on them
        elif activations is not None:
            states = activations
        else:
            states_BHD = x_BLD if cache_layer is None or cache_layer.states is None else cache_layer.states
            states = routing_states(states_BHD, context, design, layout)
        routing: Routing = self.router(states, context, design, layout)
        return routing

    def _by_outputs(
        self, x_BLD: Tensor, routing: Routing, layout: UnitLayout, known: dict[str, Tensor]
    ) -> Tensor:
        """Send whole units to their experts; or, if units have slots for padding, single tokens."""
        length, gates_NE = x_BLD.shape[1], routing.gates
        units, padded = gates_NE.shape[0], routing.valid is not None
        counts = fixed_counts(self.config.design, units, self.num_experts, self.training, padded)
        if layout.slots_per_unit > 1 and layout.slots_BL is None:
            x_NSD = layout.group(x_BLD).flatten(0, 1)
            y_NSD = self.experts(x_NSD, Experts.by_outputs, gates_NE, known, counts)
            return layout.ungroup(y_NSD.unflatten(0, (-1, layout.units)), length)
        if layout.slots_BL is not None:  # units are not in token order, even those of one token
            gates_BUSE = gates_NE.view(-1, layout.units, 1, gates_NE.shape[-1])
            gates_BUSE = gates_BUSE.expand(-1, -1, layout.slots_per_unit, -1)
            gates_NE = layout.ungroup(gates_BUSE, length).flatten(0, 1)
            counts = counts._replace(per_expert=None)
        y_MD = self.experts(x_BLD.flatten(0, 1), Experts.by_outputs, gates_NE, known, counts)
        return y_MD.view_as(x_BLD)

    def _by_parameters(
        self, x_NSD: Tensor, gates_NE: Tensor, layout: UnitLayout, cache_layer: RoutedCacheLayer | None
    ) -> Tensor:
        """One merged FFN for each unit; a cache keeps them if there are no more sequences than experts."""
        if cache_layer is None or not self.experts_are_local or torch.is_grad_enabled():
            return self.experts(x_NSD, Experts.by_parameters, gates_NE, self.config.recompute_merge)
        units, slots, _ = x_NSD.shape
        if layout.units > 1 or units > self.num_experts:  # kept FFNs would take more memory than experts
            return self.experts(x_NSD, Experts.by_sums if slots == 1 else Experts.by_parameters, gates_NE)
        if not cache_layer.merged:
            assert cache_layer.decision is not None
            cache_layer.merged = self.experts(cache_layer.decision.gates_BE, Experts.merge)
        if slots == 1:  # the first of many calls
            cache_layer.merged = {name: keep(weight) for name, weight in cache_layer.merged.items()}
        return self.experts(x_NSD, Experts.merged, cache_layer.merged)


def parts(model: nn.Module) -> dict[nn.Parameter, Part]:
    """The part of a model that each parameter belongs to: routers, routed experts, or the rest."""
    found: dict[nn.Parameter, Part] = dict.fromkeys(model.parameters(), "rest")
    for module in model.modules():
        if isinstance(module, Mixture):
            found |= dict.fromkeys(module.experts.parameters(), "experts")
            if module.router is not None:
                found |= dict.fromkeys(module.router.parameters(), "router")
    return found


def names_within(model: nn.Module, *kinds: type[nn.Module]) -> set[str]:
    """The names, in a model's state, of the tensors within modules of these classes."""
    within = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    return {f"{name}.{tensor}" for name, module in within for tensor in module.state_dict()}
