"""Stacked experts, and the two ways of combining them: by their outputs or by their parameters.

Experts take states and gates; they do not depend on the router. Each kind defines its FFN once, as a chain
of named nodes in terms of an affine map (`affine`).

Axes: N units, S slots in a unit, M tokens, P pairs of a unit and an expert it selected, E experts, D model
width, F expert hidden width, R low rank, W the width of a node.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, silu

from loriini.model.experts.affine import (
    Affine,
    WeightAndGrad,
    affine_by_all,
    affine_by_expert,
    affine_by_merging,
    affine_by_summing,
    affine_by_unit,
)
from loriini.model.experts.dispatch import find_pairs
from loriini.model.kernels.products import merged_weight
from loriini.routing.selection import FixedCounts

Tensors = Mapping[str, Tensor]
NOT_FIXED = FixedCounts()
NO_ACTIVATIONS: Tensors = {}  # a plain dict: torch.compile takes an empty MappingProxyType for a full one


class Experts(nn.Module):
    """E FFNs of one shape; every parameter is stacked, experts first.

    Other modules call `experts(x, Experts.by_outputs, gates)` for `experts.by_outputs(x, gates)`, because
    FSDP, offloading and adapters prepare the parameters around `forward`.

    `width_dims` gives the dimension of size F of each parameter; None: it has none. `output_bias` names the
    parameter that is added to an FFN's output.
    """

    width_dims: Mapping[str, int | None]
    output_bias: str | None = None

    def __init__(self, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self._copies: Tensors = {}
        self._main_grads: Tensors = {}

    @contextmanager
    def computing_on(self, copies: Tensors, main_grads: Tensors) -> Iterator[None]:
        """Inside, experts compute on `copies` of some parameters, by name.

        If a parameter has a `main_grads` (E, X), float32, a merge's backward pass adds its gradient to that,
        and returns none for it.
        """
        self._copies, self._main_grads = copies, main_grads
        try:
            yield
        finally:
            self._copies, self._main_grads = {}, {}

    def forward(self, x: Tensor, way: Callable[..., Any] | None = None, *arguments: Any) -> Any:
        """Call the method of this object that is named as `way`; without one, apply the only expert."""
        return self.single(x) if way is None else getattr(self, way.__name__)(x, *arguments)

    def node(
        self, name: str, x: Tensor, weights: Tensors, affine: Affine, known: Tensors = NO_ACTIVATIONS
    ) -> Tensor:
        """The activation `name` of the FFN with these `weights`, by parameter; `output` is the FFN's output.

        `affine` applies each weight. A `known` activation, by name, is used instead of being computed.
        ValueError for a name that the FFN does not have.
        """
        return known[name] if name in known else self._node(name, x, weights, affine, known)

    def _node(self, name: str, x: Tensor, weights: Tensors, affine: Affine, known: Tensors) -> Tensor:
        raise ValueError(f"{type(self).__name__} have no activation {name!r}; set routing.node to another")

    def ffn(self, x: Tensor, weights: Tensors, affine: Affine, known: Tensors = NO_ACTIVATIONS) -> Tensor:
        """The output of the FFN with these `weights`; (…, D) → (…, D)."""
        return self.node("output", x, weights, affine, known)

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """Every expert's activation `node` of each token, (M, E, W): AoE's nodes (appendix A)."""
        return self.node(node, x_MD, self.stacked(), affine_by_all)

    def stacked(self) -> dict[str, Tensor]:
        """All parameters by name, each (E, …); read as attributes, which adapters replace."""
        return {name: self._copies.get(name, getattr(self, name)) for name in self.width_dims}

    def merge(self, gates_NE: Tensor) -> dict[str, Tensor]:
        """θ̄ = Σ_i e_i θ_i for each unit (Lory equation 3): every parameter by name, (N, …)."""
        return {
            name: merged_weight(gates_NE, weight, self._main_grads.get(name))
            for name, weight in self.stacked().items()
        }

    def by_parameters(self, x_NSD: Tensor, gates_NE: Tensor, recompute: bool = False) -> Tensor:
        """One merged FFN for each unit: FFN(x; Σ_i e_i θ_i); (N, S, D).

        With `recompute` the backward pass merges again instead of keeping the merged weights.
        """
        if recompute:
            stacked: Any = {
                name: WeightAndGrad(weight, self._main_grads.get(name))
                for name, weight in self.stacked().items()
            }
            return self.ffn(x_NSD, stacked, affine_by_merging(gates_NE))
        return self.merged(x_NSD, self.merge(gates_NE))

    def merged(self, x_NSD: Tensor, weights: Mapping[str, Any]) -> Tensor:
        """Each unit's FFN with its own weights, which `merge` made; (N, S, D)."""
        return self.ffn(x_NSD, weights, affine_by_unit)

    def by_sums(self, x_NSD: Tensor, gates_NE: Tensor) -> Tensor:
        """`by_parameters` without merging: each affine map is the gated sum of the experts' maps; (N, S, D).

        Reads every expert once and multiplies every token by all experts: for units of few tokens.
        """
        gates_ME = gates_NE.repeat_interleave(x_NSD.shape[1], dim=0)
        y_MD = self.ffn(x_NSD.flatten(0, 1), self.stacked(), affine_by_summing(gates_ME))
        return y_MD.view_as(x_NSD)

    def by_outputs(
        self, x: Tensor, gates_NE: Tensor, known: Tensors = NO_ACTIVATIONS, counts: FixedCounts = NOT_FIXED
    ) -> Tensor:
        """Σ_i e_i FFN(x; θ_i) over the selected experts (gate > 0) of each unit; shaped as `x`.

        `x` are tokens (N, D), or units of several tokens (N, S, D), which are moved whole. Units are sorted
        by expert and pass through grouped matrix products; none is dropped, and one without experts gets 0.
        Selected experts start from the `known` activations (N, E, W) of tokens, by node. `counts` are the
        numbers of pairs that the design fixes.
        """
        pairs = find_pairs(gates_NE, counts)
        x_P = pairs.take(x)
        slots = x[0].numel() // x.shape[-1]
        affine = affine_by_expert(pairs.experts_P.repeat_interleave(slots), pairs.ends_E * slots)
        known_P = {name: pairs.pick(activations) for name, activations in known.items()}
        y_P = self.ffn(x_P.flatten(0, -2), self.stacked(), affine, known_P)
        return pairs.collect(y_P.view_as(x_P), x.shape[0])

    def single(self, x: Tensor) -> Tensor:
        """The FFN of the only expert."""
        return self.of_expert(0, x)

    def of_expert(self, expert: int, x: Tensor) -> Tensor:
        """The FFN of one expert; (…, D)."""
        return self.ffn(x, {name: weight[expert] for name, weight in self.stacked().items()}, linear)


class SwigluExperts(Experts):
    """Llama's FFN: `gate_proj` and `up_proj` (E, F, D), `down_proj` (E, D, F).

    (SiLU(x W_g) ⊙ (x W_p)) W_o (AoE equation 1).
    """

    width_dims = MappingProxyType({"gate_proj": 1, "up_proj": 1, "down_proj": 2})

    def __init__(self, num_experts: int, hidden_size: int, width: int) -> None:
        super().__init__(num_experts)
        self.gate_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def _node(self, name: str, x: Tensor, weights: Tensors, affine: Affine, known: Tensors) -> Tensor:
        """`gate` x W_g, `up` x W_p, `activated_gate`, `hidden`: (…, F); `output`: (…, D)."""
        if name in ("gate", "up"):
            return affine(x, weights[f"{name}_proj"])
        if name == "activated_gate":
            return silu(self.node("gate", x, weights, affine, known))
        if name == "output":
            return affine(self.node("hidden", x, weights, affine, known), weights["down_proj"])
        if name == "hidden":
            activated = self.node("activated_gate", x, weights, affine, known)
            return activated * self.node("up", x, weights, affine, known)
        return super()._node(name, x, weights, affine, known)


class GeluExperts(Experts):
    """GPT-2's FFN: `up_proj` (E, F, D), `up_bias` (E, F), `down_proj` (E, D, F), `down_bias` (E, D).

    GELU(x W_p + b_p) W_o + b_o, with GPT-2's approximation of the GELU by tanh.
    """

    width_dims = MappingProxyType({"up_proj": 1, "up_bias": 1, "down_proj": 2, "down_bias": None})
    output_bias = "down_bias"

    def __init__(self, num_experts: int, hidden_size: int, width: int) -> None:
        super().__init__(num_experts)
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.up_bias = nn.Parameter(torch.empty(num_experts, width))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))
        self.down_bias = nn.Parameter(torch.empty(num_experts, hidden_size))

    def _node(self, name: str, x: Tensor, weights: Tensors, affine: Affine, known: Tensors) -> Tensor:
        """`up`, `hidden`: (…, F); `output`: (…, D). There is no gate."""
        if name == "up":
            return affine(x, weights["up_proj"], weights["up_bias"])
        if name == "hidden":
            return gelu(self.node("up", x, weights, affine, known), approximate="tanh")
        if name == "output":
            hidden = self.node("hidden", x, weights, affine, known)
            return affine(hidden, weights["down_proj"], weights["down_bias"])
        return super()._node(name, x, weights, affine, known)


class FactorizedExperts(Experts):
    """SwiGLU experts whose gate goes through r dimensions (AoE equation 3).

    (SiLU(x W_down W_up) ⊙ (x W_p)) W_o with `low_proj` W_down (E, R, D), `gate_proj` W_up (E, F, R),
    `up_proj` W_p (E, F, D) and `down_proj` W_o (E, D, F).
    """

    width_dims = MappingProxyType({"low_proj": None, "gate_proj": 1, "up_proj": 1, "down_proj": 2})

    def __init__(self, num_experts: int, hidden_size: int, width: int, low_rank: int) -> None:
        super().__init__(num_experts)
        self.low_proj = nn.Parameter(torch.empty(num_experts, low_rank, hidden_size))
        self.gate_proj = nn.Parameter(torch.empty(num_experts, width, low_rank))
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def _node(self, name: str, x: Tensor, weights: Tensors, affine: Affine, known: Tensors) -> Tensor:
        """`low_rank` C = x W_down: (…, R); `output`: (…, D)."""
        if name == "low_rank":
            return affine(x, weights["low_proj"])
        if name == "output":
            low = self.node("low_rank", x, weights, affine, known)
            hidden = silu(affine(low, weights["gate_proj"])) * affine(x, weights["up_proj"])
            return affine(hidden, weights["down_proj"])
        return super()._node(name, x, weights, affine, known)


def by_parameters_loop(experts: Experts, x_NSD: Tensor, gates_NE: Tensor) -> Tensor:
    """The naive twin of `by_parameters`: merges one FFN at a time, expert by expert."""
    outputs = []
    for x_SD, gates_E in zip(x_NSD, gates_NE, strict=True):
        merged = {
            name: torch.stack([e * w for e, w in zip(gates_E, weight, strict=True)]).sum(0)
            for name, weight in experts.stacked().items()
        }
        outputs.append(experts.ffn(x_SD, merged, linear))
    return torch.stack(outputs)


def by_outputs_loop(
    experts: Experts,
    x: Tensor,
    gates_NE: Tensor,
    known: Tensors = NO_ACTIVATIONS,
    counts: FixedCounts = NOT_FIXED,
) -> Tensor:
    """The naive twin of `by_outputs`: every expert computes every unit, from the beginning."""
    gates_EN = gates_NE.T.reshape(-1, x.shape[0], *(1 for _ in x.shape[1:]))
    return torch.stack([gates_EN[i] * experts.of_expert(i, x) for i in range(experts.num_experts)]).sum(0)
