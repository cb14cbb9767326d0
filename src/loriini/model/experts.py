"""Stacked SwiGLU experts, and the two ways of combining them: by their outputs or by their parameters.

Experts take states and gates; they never see a router. Axes: N units, S slots in a unit, M tokens, E
experts, D model width, F expert hidden width.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

Merged = tuple[Tensor, Tensor]


class Experts(nn.Module):
    """E SwiGLU FFNs: `gate_up_proj` (E, 2, F, D) with the gate first, `down_proj` (E, D, F).

    Gate and up are a dimension of their own so that sharding F cuts both halves alike.
    """

    def __init__(self, num_experts: int, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(num_experts, 2, intermediate_size, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, intermediate_size))

    def merge(self, gates_NE: Tensor) -> Merged:
        """θ̄ = Σ_i e_i θ_i for each unit (Lory equation 3): (N, 2F, D) and (N, D, F)."""
        E, _, F, D = self.gate_up_proj.shape
        gates_NE = gates_NE.to(self.gate_up_proj.dtype)
        gate_up = gates_NE @ self.gate_up_proj.view(E, -1)
        down = gates_NE @ self.down_proj.view(E, -1)
        return gate_up.view(-1, 2 * F, D), down.view(-1, D, F)

    def by_parameters(self, x_NSD: Tensor, gates_NE: Tensor) -> Tensor:
        """One merged FFN for each unit: FFN(x; Σ_i e_i θ_i); (N, S, D)."""
        if self.gate_up_proj.shape[0] == 1:
            return self.single(x_NSD)
        return apply_merged(x_NSD, self.merge(gates_NE))

    def by_outputs(self, x_MD: Tensor, gates_ME: Tensor) -> Tensor:
        """Σ_i e_i FFN(x; θ_i) over the selected experts (gate > 0) of each token; (M, D).

        Tokens are sorted by expert and go through grouped matrix products; none is dropped, and a token that
        no expert selected gets 0.
        """
        if self.gate_up_proj.shape[0] == 1:
            return self.single(x_MD)
        experts, tokens, ends_E = dispatch(gates_ME)
        gate_up = grouped_linear(x_MD[tokens], self.gate_up_proj.flatten(1, 2), ends_E)
        gate, up = gate_up.chunk(2, dim=-1)
        y = grouped_linear(silu(gate) * up, self.down_proj, ends_E)
        return collect(y, gates_ME, experts, tokens)

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """What every expert computes up to `node`, (M, E, F or D): AoE's five nodes (appendix A)."""
        gate, up = torch.einsum("md,egfd->gmef", x_MD, self.gate_up_proj)
        if node in ("gate", "up"):
            return gate if node == "gate" else up
        hidden = silu(gate) if node == "activated_gate" else silu(gate) * up
        return torch.einsum("mef,edf->med", hidden, self.down_proj) if node == "output" else hidden

    def single(self, x: Tensor) -> Tensor:
        """The FFN of the only expert."""
        gate, up = nn.functional.linear(x, self.gate_up_proj[0].flatten(0, 1)).chunk(2, dim=-1)
        return nn.functional.linear(silu(gate) * up, self.down_proj[0])


class FactorizedExperts(nn.Module):
    """E experts whose gate goes through r dimensions (AoE equation 4):

    `E_i(x) = (SiLU(x W_down W_up) ⊙ (x W_p)) W_o`, with `low_proj` W_down (E, R, D), `gate_proj` W_up
    (E, F, R), `up_proj` W_p (E, F, D) and `down_proj` W_o (E, D, F).
    """

    def __init__(self, num_experts: int, hidden_size: int, width: int, low_rank: int) -> None:
        super().__init__()
        self.low_proj = nn.Parameter(torch.empty(num_experts, low_rank, hidden_size))
        self.gate_proj = nn.Parameter(torch.empty(num_experts, width, low_rank))
        self.up_proj = nn.Parameter(torch.empty(num_experts, width, hidden_size))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden_size, width))

    def activations(self, x_MD: Tensor, node: str) -> Tensor:
        """The low-rank activations of all experts in one product, C = x Ŵ_down; (M, E, R)."""
        E, R, _ = self.low_proj.shape
        return nn.functional.linear(x_MD, self.low_proj.flatten(0, 1)).unflatten(-1, (E, R))

    def by_outputs(self, x_MD: Tensor, gates_ME: Tensor, low_MER: Tensor | None = None) -> Tensor:
        """Σ_i e_i E_i(x) over each token's selected experts, which go on from their cached C_i; (M, D)."""
        low_MER = self.activations(x_MD, "low_rank") if low_MER is None else low_MER
        experts, tokens, ends_E = dispatch(gates_ME)
        gate = grouped_linear(low_MER[tokens, experts], self.gate_proj, ends_E)
        up = grouped_linear(x_MD[tokens], self.up_proj, ends_E)
        y = grouped_linear(silu(gate) * up, self.down_proj, ends_E)
        return collect(y, gates_ME, experts, tokens)


def dispatch(gates_ME: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every selected (expert, token) pair, sorted by expert: their ids, and where each expert's end (E,)."""
    chosen_EM = (gates_ME > 0).T
    experts, tokens = chosen_EM.nonzero(as_tuple=True)
    return experts, tokens, chosen_EM.sum(1).cumsum(0).to(torch.int32)


def collect(y_PD: Tensor, gates_ME: Tensor, experts_P: Tensor, tokens_P: Tensor) -> Tensor:
    """The gated outputs of all pairs, summed for each token; (M, D)."""
    weighted_PD = y_PD * gates_ME[tokens_P, experts_P, None].to(y_PD.dtype)
    return y_PD.new_zeros(len(gates_ME), y_PD.shape[-1]).index_add(0, tokens_P, weighted_PD)


def apply_merged(x_NSD: Tensor, merged: Merged) -> Tensor:
    """Each unit through its own FFN; (N, S, D)."""
    gate_up, down = merged
    gate, up = (x_NSD @ gate_up.mT).chunk(2, dim=-1)
    return (silu(gate) * up) @ down.mT


def grouped_linear(x_MD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """Rows sorted by expert, each times its expert's weight: x W_eᵀ; (M, O).

    `ends_E` (int32) is where each expert's rows end; the last is M. Uses torch's grouped kernel where it
    admits the dtype and 16-byte rows, else one product an expert.
    """
    device = x_MD.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x_MD, weight_EOD = x_MD.to(dtype), weight_EOD.to(dtype)
    aligned = all(size * x_MD.element_size() % 16 == 0 for size in weight_EOD.shape[1:])
    if aligned and x_MD.dtype != torch.float64 and len(x_MD):
        return nn.functional.grouped_mm(x_MD, weight_EOD.mT, offs=ends_E)
    return grouped_linear_loop(x_MD, weight_EOD, ends_E)


def grouped_linear_loop(x_MD: Tensor, weight_EOD: Tensor, ends_E: Tensor) -> Tensor:
    """The naive twin of the grouped kernel: one product an expert."""
    rows = torch.diff(ends_E.cpu(), prepend=torch.zeros(1, dtype=ends_E.dtype)).tolist()
    return torch.cat([x @ w.T for x, w in zip(x_MD.split(rows), weight_EOD, strict=True)])


def by_parameters_loop(experts: Experts, x_NSD: Tensor, gates_NE: Tensor) -> Tensor:
    """The naive twin of `Experts.by_parameters`: merges one FFN at a time, expert by expert."""
    outputs = []
    for x_SD, gates_E in zip(x_NSD, gates_NE, strict=True):
        gate_up = sum(e * w for e, w in zip(gates_E, experts.gate_up_proj, strict=True))
        down = sum(e * w for e, w in zip(gates_E, experts.down_proj, strict=True))
        outputs.append((silu(x_SD @ gate_up[0].T) * (x_SD @ gate_up[1].T)) @ down.T)
    return torch.stack(outputs)


def by_outputs_loop(experts: Experts | FactorizedExperts, x_MD: Tensor, gates_ME: Tensor) -> Tensor:
    """The naive twin of `by_outputs` of both kinds: every expert computes every token."""
    total = torch.zeros_like(x_MD)
    if isinstance(experts, FactorizedExperts):
        for i, low in enumerate(experts.low_proj):
            hidden = silu(x_MD @ low.T @ experts.gate_proj[i].T) * (x_MD @ experts.up_proj[i].T)
            total = total + gates_ME[:, i, None] * (hidden @ experts.down_proj[i].T)
        return total
    for i, (gate_up, down) in enumerate(zip(experts.gate_up_proj, experts.down_proj, strict=True)):
        hidden = silu(x_MD @ gate_up[0].T) * (x_MD @ gate_up[1].T)
        total = total + gates_ME[:, i, None] * (hidden @ down.T)
    return total
