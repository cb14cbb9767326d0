"""Scorers compute each expert's logit: small modules from pooled states (B, U, D) to logits (B, U, E).

Logits are float32 whatever the model's dtype.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from loriini.routing.design import RoutingConfig
from loriini.routing.unit import RoutingContext


@dataclass(frozen=True)
class RouterSettings:
    """What a layer's router is built from; `std` is the standard deviation of the model's initial weights."""

    design: RoutingConfig
    hidden_size: int
    num_experts: int
    layer: int = 0
    std: float = 0.02


class ScorerModule(nn.Module):
    """Base class of all scorers, whose matrices are initialised like the model's other weights."""

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        """Logits (B, U, E), float32."""
        raise NotImplementedError


class LinearScorer(ScorerModule):
    """R: d → E without bias (Lory equation 3; Switch; Mixtral)."""

    states_per_unit = 1

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        width = self.states_per_unit * settings.hidden_size
        self.weight = nn.Parameter(torch.empty(settings.num_experts, width))

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        return linear_logits(h_BUD, self.weight)


def linear_logits(h_BUD: Tensor, weight: Tensor) -> Tensor:
    """h Wᵀ (B, U, E) in float32, also under autocast; W is (E, D), or (B, E, D) with one per sequence."""
    with torch.autocast(h_BUD.device.type, enabled=False):
        return h_BUD.float() @ weight.float().mT


class LinearSegmentScorer(LinearScorer):
    """The sum of two linear scorers: of each token's state and of the previous segment's mean (B, U, 2D)."""

    states_per_unit = 2


class FrozenScorer(LinearScorer):
    """A linear scorer that is never trained (design-choices paper, section 3)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Parameter):  # also one that loading assigns
            value.requires_grad_(False)
        super().__setattr__(name, value)

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        return linear_logits(h_BUD, self.weight.detach())  # even if a caller makes all weights trainable


class RandomScorer(ScorerModule):
    """A linear scorer drawn from N(0, std²) once an optimizer step (design-choices paper, section 3).

    Its weights are a function of the context's `router_seed` and of the layer, so a resumed run draws what
    the uninterrupted one would have. Each sequence may have its own seed.
    """

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        self.settings = settings
        # a tensor, as torch.compile makes a graph for each int; on the CPU also under torch.device("meta")
        self.layer = torch.tensor(settings.layer, device="cpu")

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        s, seed = self.settings, torch.as_tensor(context.router_seed, device=h_BUD.device)
        draws = [standard_normal(one, self.layer, s.num_experts, s.hidden_size) for one in seed.reshape(-1)]
        return linear_logits(h_BUD, s.std * (torch.stack(draws) if seed.dim() else draws[0]))


@torch.library.custom_op("loriini::standard_normal", mutates_args=())
def standard_normal(seed: Tensor, layer: Tensor, num_experts: int, hidden_size: int) -> Tensor:
    """Standard normal numbers (E, D) of a seed and layer; an operator, as torch.compile traces no generator.

    NumPy's generator uses all bits of both as its key; torch's would drop a seed's bits above the 32nd.
    """
    generator = np.random.Generator(np.random.Philox(key=[int(seed), int(layer)]))
    return torch.from_numpy(generator.standard_normal((num_experts, hidden_size), np.float32)).to(seed.device)


@standard_normal.register_fake
def _(seed: Tensor, layer: Tensor, num_experts: int, hidden_size: int) -> Tensor:
    return seed.new_empty(num_experts, hidden_size, dtype=torch.float32)


class MLPScorer(ScorerModule):
    """Two layers with a GELU between them (design-choices paper; AoE's baseline of a large router)."""

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        width = settings.design.scorer_width or settings.hidden_size
        self.hidden = nn.Parameter(torch.empty(width, settings.hidden_size))
        self.weight = nn.Parameter(torch.empty(settings.num_experts, width))

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        with torch.autocast(h_BUD.device.type, enabled=False):
            return nn.functional.gelu(h_BUD.float() @ self.hidden.float().T) @ self.weight.float().T


class LabelScorer(ScorerModule):
    """One expert per label: its logit is 0, the others' so low that their softmax is exactly 0."""

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        self.num_experts = settings.num_experts

    def forward(self, h_BUD: Tensor, context: RoutingContext) -> Tensor:
        assert context.labels_B is not None  # the model checks its arguments once a call
        one_hot_BE = nn.functional.one_hot(context.labels_B.to(h_BUD.device), self.num_experts)
        return ((one_hot_BE.float() - 1) * 1e9)[:, None].expand(-1, h_BUD.shape[1], -1)


class ActivationNormScorer(ScorerModule):
    """The norm of each expert's own activation (AoE algorithm 2; appendix A); it has no parameters.

    Takes activations (B, U, E, W) of any width W instead of states.
    """

    def __init__(self, settings: RouterSettings) -> None:
        super().__init__()
        self.order = float(settings.design.norm)

    def forward(self, a_BUEW: Tensor, context: RoutingContext) -> Tensor:
        with torch.autocast(a_BUEW.device.type, enabled=False):
            if self.order != 2:
                return torch.linalg.vector_norm(a_BUEW.float(), self.order, dim=-1)
            norms_BUE: Tensor = EuclideanNorm.apply(
                a_BUEW.float() if a_BUEW.dtype == torch.float64 else a_BUEW
            )
            return norms_BUE


class EuclideanNorm(torch.autograd.Function):
    """The norm over the last dimension in float32, without a float32 copy of its input.

    Computes the gradient of `torch.linalg.vector_norm` in one pass.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(a, 2, dim=-1, dtype=torch.float32)
        ctx.save_for_backward(a, norms)
        return norms

    @staticmethod
    def backward(ctx: Any, dnorms: Tensor) -> Tensor:
        a, norms = ctx.saved_tensors
        scales = torch.where(norms == 0, 0.0, dnorms / norms)
        return a * scales.to(a.dtype)[..., None]


SCORERS: dict[str, Callable[[RouterSettings], ScorerModule]] = {
    "linear": LinearScorer,
    "linear_segment": LinearSegmentScorer,
    "mlp": MLPScorer,
    "frozen": FrozenScorer,
    "random": RandomScorer,
    "label": LabelScorer,
    "activation_norm": ActivationNormScorer,
}
