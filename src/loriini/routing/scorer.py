"""What gives each expert its logit: a table of small modules, pooled states (B, U, D) to logits (B, U, E).

Logits are float32 whatever the model's dtype, as in every paper.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from loriini.routing.design import RoutingConfig


class Linear(nn.Module):
    """R: d → E without bias (Lory equation 3; Switch; Mixtral)."""

    def __init__(self, hidden_size: int, num_experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, hidden_size))

    def forward(self, h_BUD: Tensor, labels_B: Tensor | None, draw: Tensor | int) -> Tensor:
        """Logits (B, U, E)."""
        with torch.autocast(h_BUD.device.type, enabled=False):
            return h_BUD.float() @ self.weight.float().T


class LinearSegment(Linear):
    """A linear scorer of a token beside the mean of the segment before its own (B, U, 2D).

    Its logits are the sum of both's, each by a matrix of its own.
    """

    def __init__(self, hidden_size: int, num_experts: int) -> None:
        super().__init__(2 * hidden_size, num_experts)


class Frozen(Linear):
    """A linear scorer that stays as it was initialised (design-choices paper, section 3)."""

    def __init__(self, hidden_size: int, num_experts: int) -> None:
        super().__init__(hidden_size, num_experts)
        self.weight.requires_grad_(False)


class Random(nn.Module):
    """A linear scorer drawn anew for every forward pass of training; at evaluation from a fixed seed.

    `draw` numbers the forward passes, so a resumed run draws what the uninterrupted one would have; `layer`
    keeps the layers' weights apart.
    """

    def __init__(self, hidden_size: int, num_experts: int, layer: int) -> None:
        super().__init__()
        self.shape = (num_experts, hidden_size)
        self.layer = layer

    def forward(self, h_BUD: Tensor, labels_B: Tensor | None, draw: Tensor | int) -> Tensor:
        """Logits (B, U, E)."""
        weight = drawn_weight(torch.as_tensor(draw, device=h_BUD.device), self.layer, *self.shape)
        with torch.autocast(h_BUD.device.type, enabled=False):
            return h_BUD.float() @ weight.T / self.shape[1] ** 0.5


@torch.library.custom_op("loriini::drawn_weight", mutates_args=())
def drawn_weight(draw: Tensor, layer: int, num_experts: int, hidden_size: int) -> Tensor:
    """The weights (E, D) of a draw for a layer; an operator, because torch.compile traces no generator."""
    generator = torch.Generator().manual_seed((int(draw) << 16) + layer)
    return torch.randn(num_experts, hidden_size, generator=generator).to(draw.device)


@drawn_weight.register_fake
def _(draw: Tensor, layer: int, num_experts: int, hidden_size: int) -> Tensor:
    return draw.new_empty(num_experts, hidden_size, dtype=torch.float32)


class MLP(nn.Module):
    """A scorer of two layers, `width` between them (design-choices paper; AoE's large router)."""

    def __init__(self, hidden_size: int, num_experts: int, width: int) -> None:
        super().__init__()
        self.hidden = nn.Parameter(torch.empty(width, hidden_size))
        self.weight = nn.Parameter(torch.empty(num_experts, width))

    def forward(self, h_BUD: Tensor, labels_B: Tensor | None, draw: Tensor | int) -> Tensor:
        """Logits (B, U, E)."""
        with torch.autocast(h_BUD.device.type, enabled=False):
            return nn.functional.gelu(h_BUD.float() @ self.hidden.float().T) @ self.weight.float().T


class Label(nn.Module):
    """One expert a label: its logit is 0, every other's so low that its softmax is exactly 0."""

    def __init__(self, hidden_size: int, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts

    def forward(self, h_BUD: Tensor, labels_B: Tensor | None, draw: Tensor | int) -> Tensor:
        """Logits (B, U, E); ValueError without labels or with one out of range."""
        if labels_B is None:
            raise ValueError("scorer=label needs routing_labels, a LongTensor (B,): one label a sequence")
        if not torch.compiler.is_compiling():  # a graph reads no values; `one_hot` refuses wrong ones itself
            self._check(labels_B)
        one_hot_BE = nn.functional.one_hot(labels_B.to(h_BUD.device), self.num_experts)
        return ((one_hot_BE - 1.0) * 1e9)[:, None].expand(-1, h_BUD.shape[1], -1)

    def _check(self, labels_B: Tensor) -> None:
        low, high = int(labels_B.min()), int(labels_B.max())
        if low < 0 or high >= self.num_experts:
            raise ValueError(
                f"routing_labels are {low}..{high}; "
                f"with {self.num_experts} experts they are 0..{self.num_experts - 1}"
            )


class ActivationNorm(nn.Module):
    """No router: the norm of each expert's own activation is its logit (AoE equation 3; appendix A).

    It takes activations (B, U, E, R) where the others take states.
    """

    def __init__(self, norm: int | str) -> None:
        super().__init__()
        self.order = float(norm)

    def forward(self, c_BUER: Tensor, labels_B: Tensor | None, draw: Tensor | int) -> Tensor:
        """Logits (B, U, E)."""
        return torch.linalg.vector_norm(c_BUER.float(), self.order, dim=-1)


SCORERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": Linear,
    "linear_segment": LinearSegment,
    "frozen": Frozen,
    "label": Label,
}


def make_scorer(config: RoutingConfig, hidden_size: int, num_experts: int, layer: int) -> nn.Module:
    """The scorer of a design, for one layer."""
    if config.scorer == "random":
        return Random(hidden_size, num_experts, layer)
    if config.scorer == "mlp":
        return MLP(hidden_size, num_experts, config.scorer_width or hidden_size)
    if config.scorer == "activation_norm":
        return ActivationNorm(config.norm)
    return SCORERS[config.scorer](hidden_size, num_experts)
