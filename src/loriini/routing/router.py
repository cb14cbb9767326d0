"""The router: scores experts, selects some and weighs them, according to the design."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from loriini.routing.design import RoutingConfig, without_effect
from loriini.routing.registry import REGISTERED
from loriini.routing.scorer import SCORERS, RouterSettings
from loriini.routing.selection import GATES, SELECTIONS
from loriini.routing.unit import Movable, RoutingContext, UnitLayout


@dataclass(frozen=True)
class Routing(Movable):
    """The routing decisions of one layer.

    `logits` (units, E) float32; `gates` (units, E) float32, 0 = not selected; `unit_shape` (B, U) with
    units = B·U in that order. `valid` (units,) is False for units that hold only padding; None: all hold
    tokens.
    """

    logits: Tensor
    gates: Tensor
    unit_shape: tuple[int, int]
    valid: Tensor | None = None


# every output of a model contains one
torch.export.register_dataclass(Routing, serialized_type_name="loriini.Routing")


class Router(nn.Module):
    """Makes the decisions of one layer. It has no scorer if there is one expert or if gates are constant.

    A call may use another design than the router was built for, if `built_from` is the same for both.
    `balance_bias` (E,) is a buffer, which `train.balance` updates and no gradient reaches. It is float32 in
    models of any dtype: in bfloat16, small steps would be rounded away.
    """

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        self.num_experts = settings.num_experts
        design = settings.design
        self.built_from = built_from(design)
        scored = self.num_experts > 1 and not design.constant_gates
        self.scorer = SCORERS[design.scorer](settings) if scored else None
        self.balance_bias: Tensor | None
        biased = scored and design.balance_bias != 0
        bias = torch.zeros(self.num_experts, dtype=torch.float32) if biased else None
        self.register_buffer("balance_bias", bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Router":
        bias = self.balance_bias
        super()._apply(fn, recurse)
        moved = self.balance_bias
        if bias is not None and moved is not None and moved.dtype != bias.dtype:
            self.balance_bias = bias.to(moved.device)
        return self

    def forward(
        self, states_BUD: Tensor, context: RoutingContext, design: RoutingConfig, layout: UnitLayout
    ) -> Routing:
        """Route a call's units by their pooled states (B, U, D) or activations (B, U, E, W).

        ValueError for a design that needs another router.
        """
        self._check(design)
        if self.scorer is None:
            logits_BUE = states_BUD.new_zeros(*states_BUD.shape[:2], self.num_experts, dtype=torch.float32)
        else:
            logits_BUE = self.scorer(states_BUD, context)
        if layout.segments_BU is not None:
            logits_BUE = _first_segment(logits_BUE, layout.segments_BU == 0, design)
        logits = logits_BUE.flatten(0, 1)
        valid = None if layout.valid_BU is None else layout.valid_BU.flatten()
        select = SELECTIONS[design.selection if self.scorer else "all"]
        weigh = GATES[design.gates if self.scorer else "uniform"]
        ranked = logits if self.balance_bias is None else logits.sigmoid() + self.balance_bias
        gates = weigh(logits, select(ranked, design, valid, self.training), design)
        return Routing(logits, gates, (logits_BUE.shape[0], logits_BUE.shape[1]), valid)

    def _check(self, design: RoutingConfig) -> None:
        if self.num_experts == 1:
            return
        for name, value in built_from(design).items():
            if value != self.built_from[name]:
                raise ValueError(
                    f"routing.{name} changed after the model was built; make a model of the new design, "
                    "as loriini.model.weights.conversion.converted does"
                )


SCORER_FIELDS = ("scorer", "scorer_width", "norm")


def built_from(design: RoutingConfig) -> dict[str, Any]:
    """The settings of a design that a layer is built from, by name; None for those without effect."""
    no_effect = without_effect(design)
    if design.constant_gates:
        no_effect.update(SCORER_FIELDS)
    options = () if design.constant_gates else REGISTERED["scorer"].get(design.scorer, ())
    names = ("constant_gates", "scope", "num_shared_experts", *SCORER_FIELDS)
    return {
        **{name: None if name in no_effect else getattr(design, name) for name in names},
        "options": {name: design.options.get(name) for name in options},
        "balance_bias": design.balance_bias != 0,
    }


def _first_segment(logits_BUE: Tensor, is_first_BU: Tensor, design: RoutingConfig) -> Tensor:
    """Segment 1 is routed by its own future: stop its gradient (Lory §3.1), or give experts equal logits."""
    uniform = design.first_segment == "uniform"
    instead = torch.zeros_like(logits_BUE) if uniform else logits_BUE.detach()
    return torch.where(is_first_BU[..., None], instead, logits_BUE)
