"""The kinds of transformer block: what stands around a mixture, all of it transformers' own parts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.olmoe.modeling_olmoe import OlmoeAttention
from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding

from loriini.model.configuration import LoriiniConfig
from loriini.model.experts import Experts, FactorizedExperts, GeluExperts, SwigluExperts

Placed = tuple[Tensor, dict[str, Any]]
"""States that know their positions (B, L, D), and what attention must be told besides."""


class Rotary(nn.Module):
    """Positions that attention turns its queries and keys by; `angles` tells their cosines and sines."""

    def __init__(self, angles: nn.Module) -> None:
        super().__init__()
        self.angles = angles

    def forward(self, x_BLD: Tensor, position_ids: Tensor) -> Placed:
        """The states as they are, and the angles for attention."""
        return x_BLD, {"position_embeddings": self.angles(x_BLD, position_ids)}


class LearnedEmbedding(nn.Embedding):
    """Positions that have a learned vector each."""

    def forward(self, x_BLD: Tensor, position_ids: Tensor) -> Placed:  # type: ignore[override]
        """The states with the vectors of their positions added."""
        return x_BLD + super().forward(position_ids), {}


@dataclass(frozen=True)
class Block:
    """The parts of a kind of block; `attention` also takes the number of its layer."""

    norm: Callable[[LoriiniConfig], nn.Module]
    attention: Callable[[LoriiniConfig, int], nn.Module]
    positions: Callable[[LoriiniConfig], nn.Module]
    experts: type[SwigluExperts] | type[GeluExperts]


_llama = Block(
    norm=lambda c: LlamaRMSNorm(c.hidden_size, eps=c.rms_norm_eps),
    attention=LlamaAttention,
    positions=lambda c: Rotary(LlamaRotaryEmbedding(c)),
    experts=SwigluExperts,
)

BLOCKS: dict[str, Block] = {
    "llama": _llama,
    "olmoe": replace(_llama, attention=OlmoeAttention),
    "phimoe": replace(
        _llama,
        norm=lambda c: nn.LayerNorm(c.hidden_size, eps=c.rms_norm_eps),
        positions=lambda c: Rotary(PhimoeRotaryEmbedding(c)),
    ),
    "gpt2": Block(
        norm=lambda c: nn.LayerNorm(c.hidden_size, eps=c.layer_norm_epsilon),
        attention=lambda c, layer: GPT2Attention(c, layer_idx=layer),
        positions=lambda c: LearnedEmbedding(c.max_position_embeddings, c.hidden_size),
        experts=GeluExperts,
    ),
}


def make_shared_experts(config: LoriiniConfig) -> Experts | None:
    """The experts that every token of a layer passes through, as one FFN of their joint width; or None."""
    if not config.shared_width:
        return None
    return BLOCKS[config.block].experts(1, config.hidden_size, config.shared_width)


def make_experts(config: LoriiniConfig) -> Experts:
    """The experts of one layer: its block's, or factorised ones where there is a low rank."""
    sizes = (config.num_experts, config.hidden_size, config.expert_width)
    if config.low_rank is not None:
        return FactorizedExperts(*sizes, config.low_rank)
    return BLOCKS[config.block].experts(*sizes)
