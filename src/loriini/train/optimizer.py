"""AdamW or Muon, their parameter groups, the learning-rate schedule, and moments copied into a mixture."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from loriini.common.checks import Bounds, Fraction, FractionBelowOne, NotNegative, Weight, check_fields
from loriini.common.errors import InputError
from loriini.common.settings import Needs, setting
from loriini.model.decoder import LoriiniDecoderLayer
from loriini.model.experts.stacked import FactorizedExperts
from loriini.model.mixture import parts
from loriini.parallel.sharding import expand_into_experts, gradient_norm
from loriini.train.muon import MATRICES, Muon

PEAK = "peak"


A_MIXTURE = Needs("a mixture, --model.num_experts above 1", lambda run: run.is_mixture)
A_TRAINED_ROUTER = Needs(
    "a mixture with a router that is trained", lambda run: run.is_mixture and run.routing.trains_router
)
A_SCHEDULE = Needs("a schedule that is not constant", lambda run: run.optimizer.schedule != "constant")
A_FALL = Needs(
    "--optimizer.schedule warmup_stable_decay", lambda run: run.optimizer.schedule == "warmup_stable_decay"
)
MUON = Needs("--optimizer.name muon", lambda run: run.optimizer.name == "muon")


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning-rate schedule."""

    name: Literal["adamw", "muon"] = "adamw"
    """AdamW for everything, or Muon for the matrices of attention and FFNs and AdamW for the rest."""
    learning_rate: Annotated[float, Bounds(above=0, most=1)] = 2e-4
    """Peak learning rate."""
    router_rate: Weight = setting(1.0, needs=A_TRAINED_ROUTER)
    """Multiplies the learning rate of routers."""
    expert_rate: Weight = setting(1.0, needs=A_MIXTURE)
    """Multiplies the learning rate of experts."""
    matrix_rate: Weight = setting(1.0, needs=MUON)
    """Multiplies the learning rate of the matrices that Muon updates."""
    momentum: FractionBelowOne = setting(0.95, needs=MUON)
    """Factor by which Muon's running mean of gradients decays in a step."""
    betas: tuple[FractionBelowOne, FractionBelowOne] = (0.9, 0.95)
    """AdamW's β₁ and β₂."""
    eps: Annotated[float, Bounds(above=0, most=1)] = 1e-8
    """AdamW's ε; experts use ε / E."""
    weight_decay: NotNegative = 0.1
    """Decoupled weight decay; norms and biases have none."""
    clip: Annotated[float, Bounds(above=0, most=1e6)] = 1.0
    """Gradient clipping: the largest global norm; larger gradients are scaled down to it."""
    warmup: Fraction = 0.05
    """Fraction of the steps over which the rate rises linearly to its peak."""
    schedule: Literal["cosine", "constant", "warmup_stable_decay"] = "cosine"
    """After the warm-up: a cosine down to `final_rate`, the peak throughout, or the peak and then a linear
    fall to `final_rate` over the last `decay` of the steps."""
    final_rate: Fraction = setting(0.1, needs=A_SCHEDULE)
    """Learning rate at the end, as a fraction of the peak. Reached at the last step (`warmup_stable_decay`),
    or one step after it (`cosine`)."""
    decay: Annotated[float, Bounds(above=0, most=1)] = setting(0.2, needs=A_FALL)
    """Fraction of the steps over which `warmup_stable_decay` falls."""

    def __post_init__(self) -> None:
        check_fields(self, "optimizer.")
        matrix_rate = self.matrix_rate if self.name == "muon" else 1.0
        largest = self.learning_rate * max(1.0, self.router_rate, matrix_rate * max(1.0, self.expert_rate))
        if largest * self.weight_decay >= 1:
            raise InputError(
                f"--optimizer.weight_decay is {self.weight_decay}; times the learning rate ({largest:g}) it "
                "must be below 1, or a step would reverse the weights"
            )


def learning_rate_factor(config: OptimizerConfig, step: int, steps: int) -> float:
    """The learning rate of `step` (counted from 0) of `steps`, as a fraction of the peak."""
    warmup = max(1, round(config.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "cosine":
        progress = (step - warmup) / max(1, steps - warmup)
        falling = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        falling = min(1.0, (steps - 1 - step) / max(1, round(config.decay * steps)))
    return config.final_rate + (1 - config.final_rate) * falling


def decays(name: str, parameter: Tensor) -> bool:
    """Whether a parameter has weight decay; norms, biases (of experts too) and temperatures have none."""
    return parameter.dim() >= 2 and not name.endswith("bias")


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """The matrices that Muon updates: those of attention and FFNs, experts' in stacks.

    Not embeddings, head, norms, biases or routers, nor AoE's low-rank projections, by which experts score
    themselves, nor an adapter's factors of experts, which are one matrix for all experts.
    """
    part_of = parts(model)
    layers = [module for module in model.modules() if isinstance(module, LoriiniDecoderLayer)]
    scoring = {module.low_proj for module in model.modules() if isinstance(module, FactorizedExperts)}
    dims = {"rest": (2, 3), "experts": (3,), "router": ()}
    return {
        parameter
        for layer in layers
        for name, parameter in layer.named_parameters()
        if parameter.dim() in dims[part_of[parameter]]
        and decays(name, parameter)
        and parameter not in scoring
    }


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW, or Muon for `hidden_matrices` and AdamW for the rest, over a model's trainable parameters.

    Parameters are grouped by optimizer, `parts` and `decays`. Gradients of E experts whose gates sum to 1 are
    about 1/E of a dense FFN's, so their eps is divided by E: on E equal merged copies AdamW then takes
    exactly the dense model's steps. The papers do not state their eps.

    transformers' Trainer takes it as `Trainer(…, optimizers=(make_optimizer(model, config), None))`, and
    schedules and clips by its own settings.
    """
    rates = {"rest": 1.0, "experts": config.expert_rate, "router": config.router_rate}
    matrices = hidden_matrices(model) if config.name == "muon" else set()
    kinds = product((False, True), rates, (True, False))
    groups: dict[tuple[bool, str, bool], list[nn.Parameter]] = {kind: [] for kind in kinds}
    experts, part_of = 1, parts(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[parameter in matrices, part_of[parameter], decays(name, parameter)].append(parameter)
            if part_of[parameter] == "experts":
                experts = parameter.shape[0]
    settings = [
        {
            "params": parameters,
            PEAK: config.learning_rate * rates[part] * (config.matrix_rate if matrix else 1.0),
            "eps": config.eps / experts if part == "experts" else config.eps,
            "weight_decay": config.weight_decay if decayed else 0.0,
            MATRICES: matrix,
            "momentum": config.momentum,
        }
        for (matrix, part, decayed), parameters in groups.items()
        if parameters
    ]
    kind = Muon if matrices else torch.optim.AdamW
    optimizer = kind(settings, lr=config.learning_rate, betas=config.betas, fused=True)
    set_learning_rate(optimizer, 1.0)
    return optimizer


def take_step(
    model: nn.Module, optimizer: torch.optim.AdamW, limit: float, loss: Tensor, largest: float = math.inf
) -> tuple[Tensor, Tensor]:
    """Step with gradients clipped to a norm of at most `limit`.

    Skips the step if the norm or the loss is not finite, or if the norm before clipping is above `largest`.
    `loss` must be the mean over all processes, so that all decide the same.

    Returns the norm before clipping and whether the step was taken, scalars on the device. The host does not
    wait for them: the fused kernel divides each gradient by `grad_scale` as it reads it, one pass less than
    clipping beforehand, and does nothing if `found_inf` is 1.
    """
    norm = gradient_norm([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    taken = norm.isfinite() & loss.isfinite() & (norm <= largest)
    optimizer.grad_scale = ((norm.float() + 1e-6) / limit).clamp(min=1.0)  # type: ignore[attr-defined]
    optimizer.found_inf = (~taken).float()  # type: ignore[attr-defined]
    optimizer.step()
    return norm, taken


def set_learning_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group's learning rate to `factor` times its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group[PEAK] * factor


def carry_moments(
    dense: nn.Module,
    dense_optimizer: torch.optim.Optimizer,
    mixture: nn.Module,
    mixture_optimizer: torch.optim.Optimizer,
) -> None:
    """Copy optimizer moments to a mixture that was copied from `dense`.

    Each of E copies gets 1/E of the gradient, so its first moment is m/E and AdamW's second is v/E².
    Parameters that the dense model lacks (routers) start without moments.
    """
    source, part_of = dict(dense.named_parameters()), parts(mixture)
    for name, parameter in mixture.named_parameters():
        state = dense_optimizer.state.get(source[name], {}) if name in source else {}
        is_expert = part_of[parameter] == "experts"
        if not state:
            continue
        experts = parameter.shape[0] if is_expert else 1
        powers = {"exp_avg": 1, "exp_avg_sq": 2}
        moments = {
            moment: expand_into_experts(state[moment] / experts**power, parameter)
            for moment, power in powers.items()
            if moment in state
        }
        mixture_optimizer.state[parameter] = {"step": state["step"].clone(), **moments}
