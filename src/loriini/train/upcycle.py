"""The end of the dense warm-up: a model and its optimizer are copied into experts, and routers start."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.conversion import copy_into_experts
from loriini.routing.router import sources
from loriini.routing.scorer import Linear
from loriini.train.optimizer import OptimizerConfig, carry_moments, make_optimizer


@dataclass(frozen=True)
class WarmupConfig:
    """The dense warm-up.

    `dense_share` of the steps train the dense model, which is then copied into the experts; 0: none.
    `moments`: the copied FFN's optimizer moments are `carried` over or start `fresh`.
    `routers` start `random` (the papers') or from `clusters`: k-means centres of the states that will route,
    so that equal copies get different data from the first step on; `sharpness` is then the standard
    deviation of the logits among experts.
    """

    dense_share: float = 0.05
    moments: Literal["carried", "fresh"] = "carried"
    routers: Literal["random", "clusters"] = "random"
    sharpness: float = 2.0


def upcycle(
    dense: LoriiniForCausalLM,
    dense_optimizer: torch.optim.Optimizer,
    config: LoriiniConfig,
    optimizer: OptimizerConfig,
    warmup: WarmupConfig,
    sample_BL: Tensor,
) -> tuple[LoriiniForCausalLM, torch.optim.AdamW]:
    """The mixture and the optimizer that go on from a dense model; `sample_BL` are ids to cluster."""
    mixture = copy_into_experts(dense, config)
    if warmup.routers == "clusters":
        initialize_routers_by_clusters(mixture, sample_BL, warmup.sharpness)
    mixture_optimizer = make_optimizer(mixture, optimizer)
    if warmup.moments == "carried":
        carry_moments(dense, dense_optimizer, mixture, mixture_optimizer)
    return mixture, mixture_optimizer


@torch.no_grad()
def initialize_routers_by_clusters(model: LoriiniForCausalLM, sample_BL: Tensor, sharpness: float) -> None:
    """Set every linear router's rows to the k-means centres of the pooled states it routes by.

    States are centred first and the centres made orthogonal to the mean state, so that the average unit gets
    equal gates; rows are scaled until the logits' standard deviation within a unit is `sharpness`.
    """
    for mixture, states_UD in zip(model.model.mixtures, routed_states(model, sample_BL), strict=True):
        scorer = mixture.router and mixture.router.scorer
        if not isinstance(scorer, Linear):
            continue
        mean_D = states_UD.mean(0)
        centres_ED = cluster_centres(states_UD - mean_D, model.config.num_experts)
        direction_D = mean_D / mean_D.norm().clamp(min=1e-12)
        rows_ED = centres_ED - (centres_ED @ direction_D)[:, None] * direction_D
        logits_UE = states_UD @ rows_ED.T
        spread = (logits_UE - logits_UE.mean(1, keepdim=True)).std().clamp(min=1e-12)
        scorer.weight.copy_(rows_ED * (sharpness / spread))


def routed_states(model: LoriiniForCausalLM, sample_BL: Tensor) -> list[Tensor]:
    """The pooled states (units, D) by which each layer would route the sample, float32."""
    pooled: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        x_BLD, call, grid = inputs[:3]
        pooled.append(sources(x_BLD.float(), call, model.config.routing, grid).flatten(0, 1))

    hooks = [mixture.register_forward_pre_hook(keep) for mixture in model.model.mixtures]
    training = model.training
    try:
        model.eval()(sample_BL, logits_to_keep=1)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return pooled


def cluster_centres(states_UD: Tensor, clusters: int, iterations: int = 25) -> Tensor:
    """k-means centres (clusters, D), by k-means++ and a fixed seed; an empty cluster keeps its."""
    generator = torch.Generator(device=states_UD.device).manual_seed(0)
    first = torch.randint(len(states_UD), (1,), generator=generator, device=states_UD.device)
    centres = states_UD[first]
    for _ in range(clusters - 1):
        distance_U = torch.cdist(states_UD, centres).amin(1).square().clamp(min=1e-12)
        centres = torch.cat([centres, states_UD[distance_U.multinomial(1, generator=generator)]])
    for _ in range(iterations):
        nearest_U = torch.cdist(states_UD, centres).argmin(1)
        members = torch.nn.functional.one_hot(nearest_U, clusters).to(states_UD.dtype)
        counts = members.sum(0)[:, None]
        centres = torch.where(counts > 0, members.T @ states_UD / counts.clamp(min=1), centres)
    return centres
