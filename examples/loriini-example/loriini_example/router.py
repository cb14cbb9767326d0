"""A cosine router with a learned temperature, a selection by a threshold, a loss, and a design of all three.

Importing the module registers them.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from loriini.routing import (
    DESIGNS,
    Routing,
    RoutingConfig,
    ScorerModule,
    register_loss,
    register_scorer,
    register_selection,
)


class CosineScorer(ScorerModule):
    """Cosines between hidden states and one vector per expert, times a learned temperature."""

    def __init__(self, settings):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(settings.num_experts, settings.hidden_size))
        self.temperature = nn.Parameter(torch.tensor([settings.design.options["temperature"]]))

    def forward(self, h_BUD: Tensor, context) -> Tensor:
        with torch.autocast(h_BUD.device.type, enabled=False):
            h_BUD, weight_ED = (nn.functional.normalize(x.float(), dim=-1) for x in (h_BUD, self.weight))
            return self.temperature.float() * (h_BUD @ weight_ED.T)


def above_threshold(
    logits_NE: Tensor, design: RoutingConfig, valid_N: Tensor | None, training: bool
) -> Tensor:
    """The experts whose probability reaches the threshold; at least the most probable."""
    p_NE = logits_NE.softmax(-1)
    return (p_NE >= design.options["threshold"]) | (p_NE == p_NE.amax(-1, keepdim=True))


def variance(routing: Routing) -> Tensor:
    """The variance of a unit's logits over experts, one mean per layer."""
    return routing.logits.var(-1).mean(-1)


register_scorer("cosine", CosineScorer, options=["temperature"])
register_selection("threshold", above_threshold, options=["threshold"])
register_loss("variance", variance)

DESIGNS["cosine"] = replace(
    DESIGNS["mixtral"],
    scorer="cosine",
    selection="threshold",
    load_balance=0.0,
    options={"temperature": 10.0, "threshold": 0.2, "variance": 0.01},
)
