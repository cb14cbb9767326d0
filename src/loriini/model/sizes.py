"""Numbers of parameters of the parts of each kind of block."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loriini.model.configuration import LoriiniConfig


@dataclass(frozen=True)
class BlockSizes:
    """Parameters of a block's attention, norm, expert and shared experts, and of all positions; the width of
    all queries of a token."""

    attention: int
    norm: int
    expert: int
    shared: int
    positions: int
    queries: int


def llama_sizes(c: "LoriiniConfig") -> BlockSizes:
    """Attention with optional biases and norms, SwiGLU or factorised experts."""
    d, f, r = c.hidden_size, c.expert_width, c.low_rank
    width = c.head_dim or d // c.num_attention_heads
    keys = (c.num_key_value_heads or c.num_attention_heads) * width
    queries = c.num_attention_heads * width
    attention = 2 * d * (queries + keys)
    attention += queries + 2 * keys if c.attention_bias else 0
    attention += d if c.attention_out_bias else 0
    attention += {None: 0, "head": 2 * width, "all": queries + keys}[c.qk_norm]
    expert = 3 * d * f if r is None else r * (d + f) + 2 * d * f
    return BlockSizes(attention, d, expert, 3 * d * c.shared_width, 0, queries)


def phimoe_sizes(c: "LoriiniConfig") -> BlockSizes:
    """A Llama's, with a bias in every norm."""
    return replace(llama_sizes(c), norm=2 * c.hidden_size)


def gpt2_sizes(c: "LoriiniConfig") -> BlockSizes:
    """With a bias in every affine map and norm."""
    d, f, shared = c.hidden_size, c.expert_width, c.shared_width
    return BlockSizes(
        attention=4 * d * d + 4 * d,
        norm=2 * d,
        expert=2 * d * f + f + d,
        shared=2 * d * shared + shared + d if shared else 0,
        positions=c.max_position_embeddings * d,
        queries=d,
    )


BLOCK_SIZES: dict[str, Callable[["LoriiniConfig"], BlockSizes]] = {
    "llama": llama_sizes,
    "olmoe": llama_sizes,
    "phimoe": phimoe_sizes,
    "gpt2": gpt2_sizes,
}


def node_parameters(c: "LoriiniConfig") -> int:
    """Parameters of an expert below the node by whose norm it is scored."""
    d, f, node = c.hidden_size, c.expert_width, c.routing.node
    if node == "output":
        return BLOCK_SIZES[c.block](c).expert
    if node == "low_rank":
        return (c.low_rank or 0) * d
    return d * f + f if c.block == "gpt2" else d * f * (2 if node == "hidden" else 1)
