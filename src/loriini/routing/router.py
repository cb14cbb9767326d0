"""Pool → score → select: the one place where a design's axes meet."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loriini.routing.design import RoutingConfig
from loriini.routing.scorer import make_scorer
from loriini.routing.selection import GATES, SELECTIONS
from loriini.routing.unit import Call, Grid, prompt_source, segment_sources, segments_before


@dataclass(frozen=True)
class Routing:
    """Who computes what in one layer.

    `logits` (units, E) float32; `gates` (units, E) float32, 0 = not selected; `unit_shape` (B, U) with
    units = B·U in that order. `valid` (units,) is False for units that hold only padding; None: all hold
    tokens.
    """

    logits: Tensor
    gates: Tensor
    unit_shape: tuple[int, int]
    valid: Tensor | None = None


class Router(nn.Module):
    """A design's decisions for one layer; no parameters where gates are the same whatever the logits.

    `balance_bias` (E,) is part of the state and not of the gradient: `train.balance` moves it.
    """

    def __init__(self, hidden_size: int, num_experts: int, config: RoutingConfig, layer: int = 0) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.config = config
        scored = num_experts > 1 and not config.fixed
        self.scorer = make_scorer(config, hidden_size, num_experts, layer) if scored else None
        self.balance_bias: Tensor | None
        biased = scored and config.balance_bias != 0
        self.register_buffer("balance_bias", torch.zeros(num_experts) if biased else None)

    def forward(self, sources_BUD: Tensor, call: Call, grid: Grid) -> Routing:
        """Route a call's units by their sources: pooled states (B, U, D) or activations (B, U, E, R)."""
        if self.scorer is None:
            logits_BUE = sources_BUD.new_zeros(*sources_BUD.shape[:2], self.num_experts, dtype=torch.float32)
        else:
            logits_BUE = self.scorer(sources_BUD, call.labels_B, call.draw)
        if self.config.segmented and call.routing != "prompt":
            logits_BUE = self._first_segment(logits_BUE, call, grid)
        logits = logits_BUE.flatten(0, 1)
        valid = None if grid.valid_BU is None else grid.valid_BU.flatten()
        decided = self.scorer is not None
        select = SELECTIONS[self.config.selection if decided else "all"]
        weigh = GATES[self.config.gates if decided else "uniform"]
        ranked = logits if self.balance_bias is None else logits.sigmoid() + self.balance_bias
        gates = weigh(logits, select(ranked, self.config, valid, self.training), self.config)
        return Routing(logits, gates, (logits_BUE.shape[0], logits_BUE.shape[1]), valid)

    def _first_segment(self, logits_BUE: Tensor, call: Call, grid: Grid) -> Tensor:
        """Segment 1 saw its own future: stop its gradient (Lory §3.1), or weigh every expert the same."""
        is_first_BU = call.segments_of_units(self.config, grid).to(logits_BUE.device) == 0
        uniform = self.config.first_segment == "uniform"
        instead = torch.zeros_like(logits_BUE) if uniform else logits_BUE.detach()
        return torch.where(is_first_BU[..., None], instead, logits_BUE)


def sources(states_BHD: Tensor, call: Call, config: RoutingConfig, grid: Grid) -> Tensor:
    """The pooled states (B, U, D) by which each unit of the call is routed, from those of its history.

    With `linear_segment` they are (B, L, 2D): each token's own beside those of the segment before it.
    """
    if config.unit == "token":
        tokens_BLD = states_BHD[:, call.past :]
        if not config.pooled:
            return tokens_BLD
        return torch.cat([tokens_BLD, segments_before(states_BHD, call, config)], dim=-1)
    if config.unit == "sequence" or call.routing == "prompt":
        return prompt_source(states_BHD, call)
    pooled_BND = segment_sources(states_BHD, call, config)
    if grid.slots_BL is None and call.past == 0:
        return pooled_BND
    segments_BU = call.segments_of_units(config, grid).clamp(max=pooled_BND.shape[1] - 1)
    return pooled_BND.gather(1, segments_BU[..., None].expand(-1, -1, pooled_BND.shape[-1]))
