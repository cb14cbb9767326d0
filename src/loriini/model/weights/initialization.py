"""Initial weights of experts, scorers and GPT-2's blocks."""

from functools import cache
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.init import normal_
from transformers import initialization as init
from transformers.pytorch_utils import Conv1D

from loriini.model.configuration import LoriiniConfig
from loriini.model.experts.stacked import Experts, FactorizedExperts, GeluExperts
from loriini.routing import Router
from loriini.routing.scorer import RouterSettings, ScorerModule
from loriini.routing.unit import RoutingContext, UnitLayout

UNITS = 2048
"""Number of random units on which `gate_power` measures gates."""
POOLED = 0.5
"""Root mean square of a segment's mean state, assumed for an untrained model. On text it was 0.25 to 0.95,
by depth, for widths of 64 to 256; gates hardly depend on it."""


@torch.no_grad()
def draw_weights(module: nn.Module, config: LoriiniConfig) -> None:
    """Draw the module's own parameters from N(0, `initializer_range`²) and set biases and buffers to 0.

    Experts are scaled as `expert_scale` says. A scorer's vectors, such as a learned temperature, keep the
    values that its constructor gave them. Modules that transformers initialises itself are left alone.
    Weights that a checkpoint has loaded are kept.
    """
    # GPT-2 scales down what adds to the residual stream: two branches a layer.
    residual = config.initializer_range / (2 * config.num_hidden_layers) ** 0.5
    if isinstance(module, Experts | ScorerModule | Conv1D):
        std = residual if getattr(module, "adds_to_residual", False) else config.initializer_range
        for name, weight in module.named_parameters(recurse=False):
            if name.endswith("bias"):
                init.zeros_(weight)
            elif weight.dim() > 1:
                init.normal_(weight, mean=0.0, std=std)
    for buffer in (getattr(module, name, None) for name in ("balance_bias", "router_seed")):
        if buffer is not None:  # uninitialised, if a checkpoint was read into a model on the meta device
            init.zeros_(buffer)
    if isinstance(module, GeluExperts):
        init.normal_(module.down_proj, mean=0.0, std=residual)
    elif isinstance(module, FactorizedExperts):
        std = low_rank_deviation(config)
        init.normal_(module.low_proj, mean=0.0, std=std)
        init.normal_(module.gate_proj, mean=0.0, std=std)
    if isinstance(module, Experts) and config.is_mixture and config.expert_scale != "initializer":
        scale_experts(module, config)


def low_rank_deviation(config: LoriiniConfig) -> float:
    """The standard deviation s of AoE's two factors: their product's, √r s², is a full gate projection's."""
    rank = config.low_rank or 1
    return (config.initializer_range / rank**0.5) ** 0.5


def scale_experts(experts: Experts, config: LoriiniConfig) -> None:
    """Multiply drawn experts, routed or shared, by `expert_factors`; with `copies`, the first one's draw."""
    factors, routed = expert_factors(config), experts.num_experts > 1
    for name, weight in experts.named_parameters(recurse=False):
        factor = (factors.every if routed else 1.0) * (factors.output if name == "down_proj" else 1.0)
        drawn = weight[:1].expand_as(weight) if config.expert_scale == "copies" else weight
        init.copy_(weight, factor * drawn)


class ExpertFactors(NamedTuple):
    """Factors of experts' initial weights."""

    every: float
    """For every matrix of a routed expert."""
    output: float
    """In addition for the last matrix (`down_proj`), also of shared experts."""


def expert_factors(config: LoriiniConfig) -> ExpertFactors:
    """The factors that give a mixture's FFN branch the initial root mean square of the dense FFN.

    The dense FFN is as wide as the `active_ffns` a of a token, so that its mean square is a times that of a
    single FFN. With G the mean of Σ e² over a unit's gates (`gate_power`):

    - Matrices of independent experts of variance s² merge into Σ e_i θ_i of variance G s². Each is divided by
      √G, so that merged FFNs are drawn as a dense one is.
    - Outputs of independent experts combine into Σ e_i y_i of mean square G E‖y‖². The last matrix, in which
      y is linear, is multiplied by √(a / G).
    - AoE's wide experts have w = f_wide / f times the mean square of a single FFN, and S shared experts S
      times. So G w + S, or w + S beside a merged FFN, takes the place of G.

    With `copies` all experts are one draw, so that (Σ e)² takes the place of Σ e².
    """
    power = gate_power(config.router_settings(0), activation_shape(config), config.expert_scale == "copies")
    width, shared = config.expert_width / config.intermediate_size, config.num_shared_experts
    active = config.design.active_ffns(config.num_experts)
    if config.merges:
        return ExpertFactors(power**-0.5, (active / (width + shared)) ** 0.5)
    return ExpertFactors(1.0, (active / (power * width + shared)) ** 0.5)


@cache
@torch.no_grad()
def gate_power(settings: RouterSettings, activation: tuple[int, float], copies: bool) -> float:
    """The mean over units of Σ e² of their gates, or (Σ e)² for `copies`, measured on random states.

    States of tokens are drawn from N(0, 1), as norms leave them, and pooled states from N(0, `POOLED`²).
    Experts that score themselves get random activations, of the width and deviation in `activation`. A larger
    norm means a larger output, so each gate counts in proportion to its norm. 1 if no unit has a gate.
    """
    design, size = settings.design, settings.hidden_size
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # not the devices'
        router = Router(settings).float().train()
        for weight in router.parameters():
            if weight.dim() > 1:
                normal_(weight, std=settings.std)
        means_NUD = POOLED * torch.randn(UNITS, 1, size, dtype=torch.float32)
        states = torch.randn(UNITS, 1, size, dtype=torch.float32) if design.unit == "token" else means_NUD
        if design.scorer == "linear_segment":
            states = torch.cat([states, means_NUD], dim=-1)
        elif design.scorer == "activation_norm":
            width, deviation = activation
            states = deviation * torch.randn(UNITS, 1, settings.num_experts, width, dtype=torch.float32)
        labels_N = torch.arange(UNITS) % settings.num_experts
        routing = router(states, RoutingContext(UNITS, 1, labels_B=labels_N), design, UnitLayout(1, 1))
    gates_NE = routing.gates
    if design.scorer == "activation_norm":
        gates_NE = gates_NE * routing.logits / routing.logits.square().mean().sqrt()
    sums_N = gates_NE.sum(1).square() if copies else gates_NE.square().sum(1)
    power = float(f"{sums_N.mean().item():.4g}")  # the digits that all processors agree on
    return power or 1.0


def activation_shape(config: LoriiniConfig) -> tuple[int, float]:
    """Width and initial deviation of the activation that scores experts; all but `low_rank` as if `gate`."""
    deviation = config.initializer_range * config.hidden_size**0.5
    if config.low_rank is not None:
        return config.low_rank, low_rank_deviation(config) * config.hidden_size**0.5
    return config.expert_width, deviation
