"""Settings of a `LoriiniConfig` that do not fit each other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loriini.model.rotary import rotary_problem

if TYPE_CHECKING:
    from loriini.model.configuration import LoriiniConfig


def conflicts(c: "LoriiniConfig") -> Iterator[str]:
    """Combinations of fields that have no meaning, beyond those of routing."""
    yield from _of_experts(c)
    yield from _of_blocks(c)


def _of_experts(c: "LoriiniConfig") -> Iterator[str]:
    routing, names = c.routing, c.label_names or []
    no_gate = c.block == "gpt2"
    gated = ("low_rank", "gate", "activated_gate")
    if routing.selection == "top_k" and routing.top_k > c.num_experts > 1:
        yield f"routing.top_k is {routing.top_k}; it must be at most num_experts, which is {c.num_experts}"
    if routing.selection == "expert_choice" and routing.capacity_factor > c.num_experts > 1:
        yield (
            f"routing.capacity_factor is {routing.capacity_factor:g}; it must be at most num_experts, which "
            f"is {c.num_experts}"
        )
    if c.low_rank is not None and c.expert_width < 1:
        yield f"low_rank is {c.low_rank}; experts of the same parameters would have no width: give less"
    if c.routed_by_label and len(names) > c.num_experts:
        yield (
            f"every label needs an expert of its own, but num_experts is {c.num_experts} and there are "
            f"{len(names)} labels: {', '.join(names)}"
        )
    if c.low_rank is not None and c.scored_by_whole_expert:
        yield f"node={routing.node} is a node of ordinary experts; set low_rank to None"
    if no_gate and (c.low_rank is not None or (c.scored_by_norm and routing.node in gated)):
        yield (
            f"low_rank and routing.node={routing.node} need experts with a gate, "
            f"and block={c.block} has none; use block=llama"
        )
    if c.hidden_act != "silu" or c.mlp_bias:
        yield (
            f"hidden_act is {c.hidden_act!r} and mlp_bias {c.mlp_bias}; experts have SiLU and no biases, and "
            "those of block=gpt2 GELU and biases: leave both out"
        )


def _of_blocks(c: "LoriiniConfig") -> Iterator[str]:
    gpt2, heads = c.block == "gpt2", c.num_attention_heads
    key_value_heads, width = c.num_key_value_heads or heads, c.hidden_size // heads
    if c.hidden_size % heads != 0 and (gpt2 or c.head_dim is None):
        yield f"num_attention_heads is {heads}; it must divide hidden_size, which is {c.hidden_size}"
    if heads % key_value_heads != 0:
        yield (
            f"num_key_value_heads is {key_value_heads}; it must divide num_attention_heads, which is {heads}"
        )
    if gpt2 and c.attention_dropout:
        yield (
            f"attention_dropout is {c.attention_dropout}; with block=gpt2 dropout is that of attention too"
        )
    if not gpt2 and c.dropout != 0:
        yield f"dropout is {c.dropout}, but block={c.block} has none; use block=gpt2"
    if gpt2 and c.head_dim not in (None, width):
        yield f"head_dim is {c.head_dim}, but heads of block=gpt2 have hidden_size / num_attention_heads"
    if gpt2 and key_value_heads != heads:
        yield (
            f"num_key_value_heads is {key_value_heads}, but block=gpt2 has no grouped heads; use block=llama"
        )
    if gpt2 and (c.qk_norm is not None or c.attention_bias or c.attention_out_bias):
        yield "qk_norm, attention_bias and attention_out_bias are not for block=gpt2; use block=llama"
    if not gpt2 and (c.head_dim or width) % 2 != 0:
        yield f"a head is {c.head_dim or width} wide; rotary positions need an even width: change head_dim"
    if c.block == "olmoe" and c.qk_norm == "head":
        yield "block=olmoe has qk_norm=all; use block=llama with qk_norm=head"
    if (c.block == "olmoe" or c.qk_norm == "all") and c.head_dim not in (None, width):
        yield f"head_dim is {c.head_dim}, but qk_norm=all needs heads of hidden_size / num_attention_heads"
    if problem := rotary_problem(c.rope_parameters or {}, c.head_dim or width, c.block):
        yield problem
