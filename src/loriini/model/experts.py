"""Stacked experts, and the two ways of combining them: by their outputs or by their parameters.

Experts take states and gates; they never see a router. Each kind says once what its FFN computes, in terms
of an affine map; whose weights that map takes (one expert's, each unit's merged ones, each row's expert's)
is the business of a function that the FFN is given.

Axes: N units, S slots in a unit, M tokens, P pairs of a token and an expert that it selected, E experts, D
model width, F expert hidden width, R low rank, O the outputs of an affine map.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, one_hot, silu

Weights = Mapping[str, Tensor]


class Affine(Protocol):
    """A way of applying weights to states: x Wᵀ + b."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, /) -> Tensor:
        """States (…, D) to (…, O)."""


class Experts(nn.Module):
    """E FFNs of one shape; every parameter is stacked, experts first.

    `width_dims` says which dimension of a parameter is F; those not named there have none. `output_bias` is
    the parameter that is added to an FFN's output.
    """

    width_dims: Mapping[str, int]
    output_bias: str | None = None
    spread = False
    """Whether other processes hold the rest of every expert."""

    def __init__(self, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts

    def ffn(self, x: Tensor, weights: Weights, affine: Affine, low: Tensor | None = None) -> Tensor:
        """The FFN of `weights`, named as the parameters; `affine` applies each of them. (…, D) → (…, D).

        `low` are the low-rank activations (…, R) of experts that have some, where they are known already.
        """
        raise NotImplementedError

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """What every expert computes up to `node`, (M, E, its width there): AoE's nodes (appendix A)."""
        raise NotImplementedError

    def stacked(self) -> dict[str, Tensor]:
        """All parameters by name, each (E, …)."""
        return dict(self.named_parameters())

    def merge(self, gates_NE: Tensor) -> dict[str, Tensor]:
        """θ̄ = Σ_i e_i θ_i for each unit (Lory equation 3): every parameter by name, (N, …)."""
        return {
            name: (gates_NE.to(weight.dtype) @ weight.flatten(1)).unflatten(-1, weight.shape[1:])
            for name, weight in self.stacked().items()
        }

    def by_parameters(self, x_NSD: Tensor, gates_NE: Tensor, recompute: bool = False) -> Tensor:
        """One merged FFN for each unit: FFN(x; Σ_i e_i θ_i); (N, S, D).

        With `recompute` the merged weights are not kept for the backward pass but merged again there.
        """
        if self.num_experts == 1:
            return self.single(x_NSD)
        if recompute:
            return self.ffn(x_NSD, self.stacked(), affine_by_merging(gates_NE))
        return self.ffn(x_NSD, self.merge(gates_NE), affine_by_unit)

    def by_outputs(self, x_MD: Tensor, gates_ME: Tensor, low_MER: Tensor | None = None) -> Tensor:
        """Σ_i e_i FFN(x; θ_i) over the selected experts (gate > 0) of each token; (M, D).

        Tokens are sorted by expert and go through grouped matrix products; none is dropped, and a token that
        no expert selected gets 0. Experts go on from their low-rank activations where those are given.
        """
        if self.num_experts == 1:
            return self.single(x_MD)
        experts_P, tokens_P, ends_E = dispatch(gates_ME)
        low_PR = None if low_MER is None else low_MER[tokens_P, experts_P]
        y_PD = self.ffn(x_MD[tokens_P], self.stacked(), affine_by_expert(experts_P, ends_E), low_PR)
        return collect(y_PD, gates_ME, experts_P, tokens_P)

    def single(self, x: Tensor) -> Tensor:
        """The FFN of the only expert."""
        return self.of_expert(0, x)

    def of_expert(self, expert: int, x: Tensor) -> Tensor:
        """The FFN of one expert; (…, D)."""
        return self.ffn(x, {name: weight[expert] for name, weight in self.stacked().items()}, linear)


class SwigluExperts(Experts):
    """Llama's FFN: `gate_up_proj` (E, 2, F, D) with the gate first, `down_proj` (E, D, F).

    Gate and up are a dimension of their own so that sharding F cuts both halves alike.
    """

    width_dims = MappingProxyType({"gate_up_proj": 2, "down_proj": 2})

    def __init__(self, num_experts: int, hidden_size: int, width: int) -> None:
        super().__init__(num_experts)
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2, width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def ffn(self, x: Tensor, weights: Weights, affine: Affine, low: Tensor | None = None) -> Tensor:
        """(SiLU(x W_g) ⊙ (x W_p)) W_o (AoE equation 1)."""
        gate, up = affine(x, weights["gate_up_proj"].flatten(-3, -2)).chunk(2, dim=-1)
        return affine(silu(gate) * up, weights["down_proj"])

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """(M, E, F), or (M, E, D) at `output`."""
        gate, up = torch.einsum("md,egfd->gmef", x_MD, self.gate_up_proj)
        if node in ("gate", "up"):
            return gate if node == "gate" else up
        hidden = silu(gate) if node == "activated_gate" else silu(gate) * up
        return torch.einsum("mef,edf->med", hidden, self.down_proj) if node == "output" else hidden


class GeluExperts(Experts):
    """GPT-2's FFN: `up_proj` (E, F, D), `up_bias` (E, F), `down_proj` (E, D, F), `down_bias` (E, D)."""

    width_dims = MappingProxyType({"up_proj": 1, "up_bias": 1, "down_proj": 2})
    output_bias = "down_bias"

    def __init__(self, num_experts: int, hidden_size: int, width: int) -> None:
        super().__init__(num_experts)
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.up_bias = nn.Parameter(torch.empty(num_experts, width))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))
        self.down_bias = nn.Parameter(torch.empty(num_experts, hidden_size))

    def ffn(self, x: Tensor, weights: Weights, affine: Affine, low: Tensor | None = None) -> Tensor:
        """GELU(x W_p + b_p) W_o + b_o, with GPT-2's approximation of the GELU by tanh."""
        hidden = gelu(affine(x, weights["up_proj"], weights["up_bias"]), approximate="tanh")
        return affine(hidden, weights["down_proj"], weights["down_bias"])

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """(M, E, F), or (M, E, D) at `output`; there is no gate."""
        up = torch.einsum("md,efd->mef", x_MD, self.up_proj) + self.up_bias
        hidden = up if node == "up" else gelu(up, approximate="tanh")
        if node != "output":
            return hidden
        return torch.einsum("mef,edf->med", hidden, self.down_proj) + self.down_bias


class FactorizedExperts(Experts):
    """SwiGLU experts whose gate goes through r dimensions (AoE equation 3).

    `low_proj` W_down (E, R, D), `gate_proj` W_up (E, F, R), `up_proj` W_p (E, F, D) and `down_proj` W_o
    (E, D, F).
    """

    width_dims = MappingProxyType({"gate_proj": 1, "up_proj": 1, "down_proj": 2})

    def __init__(self, num_experts: int, hidden_size: int, width: int, low_rank: int) -> None:
        super().__init__(num_experts)
        self.low_proj = nn.Parameter(torch.empty(num_experts, low_rank, hidden_size))
        self.gate_proj = nn.Parameter(torch.empty(num_experts, width, low_rank))
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def ffn(self, x: Tensor, weights: Weights, affine: Affine, low: Tensor | None = None) -> Tensor:
        """(SiLU(x W_down W_up) ⊙ (x W_p)) W_o, from C = x W_down on where `low` gives it."""
        low = affine(x, weights["low_proj"]) if low is None else low
        hidden = silu(affine(low, weights["gate_proj"])) * affine(x, weights["up_proj"])
        return affine(hidden, weights["down_proj"])

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """The low-rank activations of all experts in one product, C = x Ŵ_down; (M, E, R)."""
        return linear(x_MD, self.low_proj.flatten(0, 1)).unflatten(-1, self.low_proj.shape[:2])


def dispatch(gates_ME: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every selected (expert, token) pair, sorted by expert: their ids, and where each expert's end (E,)."""
    chosen_EM = (gates_ME > 0).T
    experts_P, tokens_P = chosen_EM.nonzero(as_tuple=True)
    return experts_P, tokens_P, chosen_EM.sum(1).cumsum(0).to(torch.int32)


def collect(y_PD: Tensor, gates_ME: Tensor, experts_P: Tensor, tokens_P: Tensor) -> Tensor:
    """The gated outputs of all pairs, summed for each token; (M, D)."""
    weighted_PD = y_PD * gates_ME[tokens_P, experts_P, None].to(y_PD.dtype)
    return y_PD.new_zeros(len(gates_ME), y_PD.shape[-1]).index_add(0, tokens_P, weighted_PD)


def affine_by_unit(x_NSD: Tensor, weight_NOD: Tensor, bias_NO: Tensor | None = None) -> Tensor:
    """Each unit times its own weight, plus its own bias; (N, S, O)."""
    if len(x_NSD) == 1:  # in bfloat16 on a CPU a batched product of one matrix is many times slower
        return linear(x_NSD[0], weight_NOD[0], None if bias_NO is None else bias_NO[0])[None]
    y_NSO: Tensor = BatchedLinear.apply(x_NSD.to(weight_NOD.dtype), weight_NOD)
    return y_NSO if bias_NO is None else y_NSO + bias_NO[:, None]


def affine_by_merging(gates_NE: Tensor) -> Affine:
    """The affine map that takes each unit through the merge of its experts' weights and biases."""

    def affine(x_NSD: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
        device = x_NSD.device.type
        on = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if on else weight_EOD.dtype
        y_NSO: Tensor = merged_linear(x_NSD.to(dtype), gates_NE.to(dtype), weight_EOD)
        if bias_EO is None:
            return y_NSO
        return y_NSO + (gates_NE.to(dtype) @ bias_EO.to(dtype))[:, None]

    return affine


@torch.library.custom_op("loriini::merged_linear", mutates_args=())
def merged_linear(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor) -> Tensor:
    """Each unit times its own merge of the experts' weights, in the states' dtype; (N, S, O).

    An operator of its own since torch.compile would keep the merge that the backward pass makes anew.
    """
    return x_NSD @ merged_weight(gates_NE, weight_EOD).mT


@merged_linear.register_fake
def _(x_NSD: Tensor, gates_NE: Tensor, weight_EOD: Tensor) -> Tensor:
    return x_NSD.new_empty(*x_NSD.shape[:2], weight_EOD.shape[1])


def merged_weight(gates_NE: Tensor, weight_EOD: Tensor) -> Tensor:
    """Σ_i e_i W_i of each unit, in the gates' dtype; (N, O, D)."""
    return (gates_NE @ weight_EOD.to(gates_NE.dtype).flatten(1)).unflatten(-1, weight_EOD.shape[1:])


def _keep_what_was_merged(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _merge_again(ctx: Any, dy_NSO: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of states, gates and weights, from a second merge."""
    x_NSD, gates_NE, weight_EOD = ctx.saved_tensors
    dx_NSD = dy_NSO @ merged_weight(gates_NE, weight_EOD)
    dmerged_NP = (dy_NSO.mT @ x_NSD).flatten(1)
    dgates_NE = dmerged_NP @ weight_EOD.to(gates_NE.dtype).flatten(1).T
    dweight_EOD = (gates_NE.T @ dmerged_NP).view_as(weight_EOD).to(weight_EOD.dtype)
    return dx_NSD, dgates_NE, dweight_EOD


merged_linear.register_autograd(_merge_again, setup_context=_keep_what_was_merged)


class BatchedLinear(torch.autograd.Function):
    """x Wᵀ whose weight gradient dYᵀ x comes in the weight's layout; autograd's would have to be copied."""

    @staticmethod
    def forward(ctx: Any, x_NSD: Tensor, weight_NOD: Tensor) -> Tensor:
        """The products (N, S, O)."""
        ctx.save_for_backward(x_NSD, weight_NOD)
        return x_NSD @ weight_NOD.mT

    @staticmethod
    def backward(ctx: Any, dy_NSO: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both."""
        x_NSD, weight_NOD = ctx.saved_tensors
        return dy_NSO @ weight_NOD, dy_NSO.mT @ x_NSD


def affine_by_expert(experts_P: Tensor, ends_E: Tensor) -> Affine:
    """The affine map that takes pairs sorted by expert, each through its expert's weight and bias."""

    def affine(x_PD: Tensor, weight_EOD: Tensor, bias_EO: Tensor | None = None, /) -> Tensor:
        y_PO = grouped_linear(x_PD, weight_EOD, ends_E)
        if bias_EO is None:
            return y_PO
        # A product with one-hot rows: the gradient of an index would add up the many rows of few experts.
        chosen_PE = one_hot(experts_P, len(bias_EO)).to(bias_EO.dtype)
        return y_PO + chosen_PE @ bias_EO

    return affine


def grouped_linear(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """Rows sorted by expert, each times its expert's weight: x W_eᵀ; (P, O).

    `ends_E` (int32) is where each expert's rows end; the last is P. Uses torch's grouped kernel where it
    admits the dtype and 16-byte rows, else one product an expert.
    """
    device = x_PD.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x_PD, weight_EOD = x_PD.to(dtype), weight_EOD.to(dtype)
    aligned = all(size * x_PD.element_size() % 16 == 0 for size in weight_EOD.shape[1:])
    admitted = x_PD.dtype == torch.bfloat16 or (
        x_PD.dtype != torch.float64 and not torch.compiler.is_compiling()  # torch traces it in bfloat16 only
    )
    if aligned and admitted:
        return nn.functional.grouped_mm(x_PD, weight_EOD.mT, offs=ends_E)
    return grouped_linear_loop(x_PD, weight_EOD, ends_E)


def grouped_linear_loop(x_PD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """The naive twin of the grouped kernel: one product an expert."""
    rows = torch.diff(ends_E.cpu(), prepend=torch.zeros(1, dtype=ends_E.dtype)).tolist()
    return torch.cat([x @ w.T for x, w in zip(x_PD.split(rows), weight_EOD, strict=True)])


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
    experts: Experts, x_MD: Tensor, gates_ME: Tensor, low_MER: Tensor | None = None
) -> Tensor:
    """The naive twin of `by_outputs`: every expert computes every token, from its state on."""
    outputs = [gates_ME[:, i, None] * experts.of_expert(i, x_MD) for i in range(experts.num_experts)]
    return torch.stack(outputs).sum(0)
