"""Transformer blocks: the norms, attention and positions around a mixture, all from transformers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeAttention, Glm4MoeRotaryEmbedding
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm
from transformers.models.olmoe.modeling_olmoe import OlmoeAttention
from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

from loriini.model.configuration import LoriiniConfig
from loriini.model.experts.stacked import Experts, FactorizedExperts, GeluExperts, SwigluExperts

WithPositions = tuple[Tensor, dict[str, Any]]
"""States (B, L, D) with learned positions added, and keyword arguments of attention for rotary ones."""


class Rotary(nn.Module):
    """Rotary positions; the module `angles` computes their cosines and sines."""

    def __init__(self, angles: nn.Module) -> None:
        super().__init__()
        self.angles = angles

    def forward(self, x_BLD: Tensor, position_ids: Tensor) -> WithPositions:
        """The states unchanged, and the angles for attention."""
        return x_BLD, {"position_embeddings": self.angles(x_BLD, position_ids)}


class LearnedEmbedding(nn.Embedding):
    """One learned vector per position."""

    def forward(self, x_BLD: Tensor, position_ids: Tensor) -> WithPositions:  # type: ignore[override]
        """The states plus the vectors of their positions."""
        return x_BLD + super().forward(position_ids), {}


@dataclass(frozen=True)
class Block:
    """The parts of a kind of block; `attention` also takes its layer's index."""

    norm: Callable[[LoriiniConfig], nn.Module]
    attention: Callable[[LoriiniConfig, int], nn.Module]
    positions: Callable[[LoriiniConfig], nn.Module]
    experts: type[SwigluExperts] | type[GeluExperts]


ATTENTIONS = {None: LlamaAttention, "head": Qwen3Attention, "all": OlmoeAttention}
"""Rotary attention by `qk_norm`. Glm4MoeAttention replaces the first two if only part of a head rotates."""


def rotary_attention(config: LoriiniConfig, layer_idx: int) -> nn.Module:
    """Attention with rotary positions, and the norms and biases of the configuration."""
    partial = config.rope_parameters.get("partial_rotary_factor", 1) != 1
    attention: nn.Module = (Glm4MoeAttention if partial else ATTENTIONS[config.qk_norm])(config, layer_idx)
    if config.attention_out_bias != (config.attention_bias and not partial):
        heads, bias = config.num_attention_heads * config.head_dim, bool(config.attention_out_bias)
        attention.o_proj = nn.Linear(heads, config.hidden_size, bias=bias)
    return attention


def gpt2_attention(config: LoriiniConfig, layer_idx: int) -> nn.Module:
    """GPT-2's attention; a mark on its output projection makes `draw_weights` scale that down."""
    attention = GPT2Attention(config, layer_idx=layer_idx)
    attention.c_proj.adds_to_residual = True
    return attention


_llama = Block(
    norm=lambda c: LlamaRMSNorm(c.hidden_size, eps=c.rms_norm_eps),
    attention=rotary_attention,
    positions=lambda c: Rotary(Glm4MoeRotaryEmbedding(c)),  # Llama's, but reads `partial_rotary_factor`
    experts=SwigluExperts,
)

BLOCKS: dict[str, Block] = {
    "llama": _llama,
    "phimoe": replace(
        _llama,
        norm=lambda c: nn.LayerNorm(c.hidden_size, eps=c.rms_norm_eps),
        positions=lambda c: Rotary(
            (
                Glm4MoeRotaryEmbedding
                if c.rope_parameters["rope_type"] == "default"
                else PhimoeRotaryEmbedding
            )(c)
        ),
    ),
    "gpt2": Block(
        norm=lambda c: nn.LayerNorm(c.hidden_size, eps=c.layer_norm_epsilon),
        attention=gpt2_attention,
        positions=lambda c: LearnedEmbedding(c.max_position_embeddings, c.hidden_size),
        experts=GeluExperts,
    ),
}


def make_shared_experts(config: LoriiniConfig) -> Experts | None:
    """A layer's shared experts as one FFN of their total width; None without any."""
    if not config.shared_width:
        return None
    return BLOCKS[config.block].experts(1, config.hidden_size, config.shared_width)


def make_experts(config: LoriiniConfig) -> Experts:
    """The routed experts of one layer: the block's kind, or factorised ones if there is a low rank."""
    sizes = (config.num_experts, config.hidden_size, config.expert_width)
    if config.low_rank is not None:
        return FactorizedExperts(*sizes, config.low_rank)
    return BLOCKS[config.block].experts(*sizes)
