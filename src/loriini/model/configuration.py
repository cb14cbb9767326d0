"""The model's configuration: a transformer of some kind of block, a number of experts, a row of the space."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import LlamaConfig

from loriini.routing import DESIGNS, RoutingConfig


def resolve_routing(routing: "RoutingConfig | Mapping[str, Any] | str") -> RoutingConfig:
    """A design from itself, from its JSON object or from its name; ValueError for an unknown one."""
    if isinstance(routing, str):
        if routing not in DESIGNS:
            raise ValueError(f"no design is named {routing!r}; there are: {', '.join(DESIGNS)}")
        return DESIGNS[routing]
    return routing if isinstance(routing, RoutingConfig) else RoutingConfig(**routing)


@strict
class LoriiniConfig(LlamaConfig):
    """A Llama whose FFNs are mixtures of `num_experts` FFNs of `intermediate_size` each.

    `routing` is a `RoutingConfig`, its JSON object or a design's name. One expert makes the model a Llama.

    `block` gpt2 makes it a GPT-2 instead: LayerNorm with `layer_norm_epsilon`, GELU, learned positions,
    biases, and `dropout` of embeddings, attention weights and residual branches. Tying the head is a choice
    of its own, `tie_word_embeddings`; GPT-2 ties it. `block` olmoe is a Llama whose queries and keys pass an
    RMSNorm each, over all heads together; phimoe is a Llama with LayerNorm, whose rotary positions may be
    scaled as Phi-3.5-MoE's are (`rope_parameters`). `attention_bias` and `lm_head_bias` add biases.

    With `low_rank` r the experts' gate projection is factorised through r dimensions, as AoE's are, and their
    width is `expert_width`, which keeps the parameters of an expert of `intermediate_size`. A design scored
    by the norm of low-rank activations needs one; its default is a third of the hidden size.

    With `recompute_merge` the backward pass merges experts again instead of keeping what the forward pass
    merged, for less memory and a little more time.

    `label_names` says what a label stands for, where routing is by label: name i is routed to expert i.
    """

    model_type = "loriini"
    base_model_tp_plan = None
    # What transformers' GPT2Attention and OlmoeAttention ask of their configuration.
    attribute_map = {"attn_pdrop": "dropout", "resid_pdrop": "dropout"}  # noqa: RUF012
    scale_attn_weights, scale_attn_by_inverse_layer_idx, reorder_and_upcast_attn = True, False, False
    clip_qkv = None

    block: Literal["llama", "olmoe", "phimoe", "gpt2"] = "llama"
    lm_head_bias: bool = False
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    num_experts: int = 8
    low_rank: int | None = None
    recompute_merge: bool = False
    routing: Any = "lory"
    label_names: list[str] | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.routing = resolve_routing(self.routing)
        for refused, reason in _refusals(self):
            if refused:
                raise ValueError(reason)
        if self.low_rank is None and self._scored_by_low_rank():
            self.low_rank = max(8, self.hidden_size // 3 // 8 * 8)
        super().__post_init__(**kwargs)

    def _scored_by_low_rank(self) -> bool:
        return self.scored_by_norm and self.routing.node == "low_rank"

    @property
    def scored_by_norm(self) -> bool:
        """Whether experts score themselves, by the norm of their activations."""
        return self.routing.scorer == "activation_norm"

    @property
    def routed_by_label(self) -> bool:
        """Whether every call needs `routing_labels`."""
        return self.routing.scorer == "label" and self.num_experts > 1

    @property
    def expert_width(self) -> int:
        """Each expert's width: f, or f_wide = (3df - rd) / (r + 2d) to the nearest 8 (AoE section 3.2)."""
        d, f, r = self.hidden_size, self.intermediate_size, self.low_rank
        return f if r is None else round((3 * d * f - r * d) / (r + 2 * d) / 8) * 8

    @property
    def num_shared_experts(self) -> int:
        """Experts of `intermediate_size` that every token passes through; none in a dense model."""
        return self.routing.num_shared_experts if self.num_experts > 1 else 0

    @property
    def shared_width(self) -> int:
        """The width of a layer's shared experts, which are one FFN; 0: none."""
        return self.num_shared_experts * self.intermediate_size

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a JSON object."""
        values = super().to_dict()
        if isinstance(self.routing, RoutingConfig):
            values["routing"] = self.routing.to_dict()
        return values

    @property
    def experts_per_token(self) -> float:
        """Routed FFNs of `intermediate_size` that a token passes through: its active experts."""
        routing = self.routing
        if self.num_experts == 1 or routing.combination == "parameters":
            return 1
        if routing.selection == "expert_choice":
            return routing.capacity_factor
        return min(routing.top_k, self.num_experts) if routing.selection == "top_k" else self.num_experts

    def parameters(self) -> tuple[int, int]:
        """(total, active): parameters held, and those one token's forward pass uses.

        A merged FFN counts once, and so does a tied head. With top_p and positive the number of experts
        varies; all are counted.
        """
        sizes, layers = SIZES[self.block](self), self.num_hidden_layers
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        embeddings += self.vocab_size if self.lm_head_bias else 0
        rest = embeddings + sizes.positions + sizes.norm + layers * (sizes.attention + 2 * sizes.norm)
        rest += layers * sizes.shared
        rest += self._router_parameters()
        active = sizes.expert * self.experts_per_token
        if self._scored_by_low_rank():  # AoE's unselected experts compute this much too
            low = (self.low_rank or 0) * self.hidden_size
            active += low * (self.num_experts - self.experts_per_token)
        return rest + layers * sizes.expert * self.num_experts, rest + round(layers * active)

    def _router_parameters(self) -> int:
        d, experts, width = self.hidden_size, self.num_experts, self.routing.scorer_width or self.hidden_size
        sizes = {
            "linear": d * experts,
            "linear_segment": 2 * d * experts,
            "frozen": d * experts,
            "mlp": width * (d + experts),
        }
        routers = self.num_hidden_layers if self.routing.scope == "layer" else 1
        routed = self.num_experts > 1 and not self.routing.fixed
        return routers * sizes.get(self.routing.scorer, 0) if routed else 0

    def flops_per_token(self, length: int) -> float:
        """Training FLOPs a token (forward and backward, 6 a weight), attention and merging included.

        Looked-up embeddings cost nothing; a tied one counts as the head. Attention over `length` positions
        counts the causal half; merging costs E/T of the FFN (Lory appendix B), or E/`length` where a whole
        sequence is one unit.
        """
        _, active = self.parameters()
        sizes, layers = SIZES[self.block](self), self.num_hidden_layers
        looked_up = sizes.positions + (0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size)
        attention = layers * self.hidden_size * length
        merging = 0.0
        if self.num_experts > 1 and self.routing.combination == "parameters":
            span = self.routing.segment_length if self.routing.segmented else length
            merging = layers * sizes.expert * self.num_experts / span
        return 6 * (active - looked_up + attention + merging)


def _refusals(c: LoriiniConfig) -> list[tuple[bool, str]]:
    """(refused, reason) for what may not combine beyond the rules of routing itself."""
    routing, gpt2 = c.routing, c.block == "gpt2"
    gated = ("low_rank", "gate", "activated_gate")
    names = c.label_names or []
    return [
        (c.num_experts < 1, f"num_experts is {c.num_experts}; it must be at least 1"),
        (
            routing.selection == "top_k" and routing.top_k > c.num_experts > 1,
            f"top_k is {routing.top_k} but num_experts is {c.num_experts}",
        ),
        (
            c.routed_by_label and len(names) > c.num_experts,
            f"every label needs an expert of its own, but num_experts is {c.num_experts} and there are "
            f"{len(names)} labels: {', '.join(names)}",
        ),
        (
            c.low_rank is not None and c.scored_by_norm and routing.node != "low_rank",
            f"node={routing.node} is a node of ordinary experts; set low_rank to None",
        ),
        (
            gpt2 and (c.low_rank is not None or (c.scored_by_norm and routing.node in gated)),
            f"low_rank and routing.node={routing.node} need experts with a gate, "
            f"and block={c.block} has none; use block=llama",
        ),
        (
            not gpt2 and c.dropout != 0,
            f"dropout is {c.dropout}, but block={c.block} has none; use block=gpt2",
        ),
        (
            c.block == "olmoe" and c.head_dim not in (None, c.hidden_size // c.num_attention_heads),
            f"head_dim is {c.head_dim}, but block=olmoe norms heads of hidden_size / num_attention_heads",
        ),
        (not 0 <= c.dropout < 1, f"dropout is {c.dropout}; it must be in [0, 1)"),
    ]


@dataclass(frozen=True)
class Sizes:
    """Parameters of a block's parts: of an attention, a norm, an expert, a layer's shared experts together,
    and of all positions.
    """

    attention: int
    norm: int
    expert: int
    shared: int
    positions: int


def llama_sizes(c: LoriiniConfig) -> Sizes:
    """Of SwiGLU experts, factorised ones included, which have no biases."""
    d, f, r = c.hidden_size, c.expert_width, c.low_rank
    width = c.head_dim or d // c.num_attention_heads
    keys = (c.num_key_value_heads or c.num_attention_heads) * width
    queries = c.num_attention_heads * width
    attention = 2 * d * (queries + keys) + (queries + 2 * keys + d if c.attention_bias else 0)
    expert = 3 * d * f if r is None else r * (d + f) + 2 * d * f
    return Sizes(attention, d, expert, 3 * d * c.shared_width, 0)


def olmoe_sizes(c: LoriiniConfig) -> Sizes:
    """A Llama's and the norms of queries and keys."""
    sizes = llama_sizes(c)
    keys = c.hidden_size // c.num_attention_heads * (c.num_key_value_heads or c.num_attention_heads)
    return replace(sizes, attention=sizes.attention + c.hidden_size + keys)


def phimoe_sizes(c: LoriiniConfig) -> Sizes:
    """A Llama's, with a bias in every norm."""
    return replace(llama_sizes(c), norm=2 * c.hidden_size)


def gpt2_sizes(c: LoriiniConfig) -> Sizes:
    """With the biases of every map and norm."""
    d, f, shared = c.hidden_size, c.expert_width, c.shared_width
    return Sizes(
        attention=4 * d * d + 4 * d,
        norm=2 * d,
        expert=2 * d * f + f + d,
        shared=2 * d * shared + shared + d if shared else 0,
        positions=c.max_position_embeddings * d,
    )


SIZES: dict[str, Callable[[LoriiniConfig], Sizes]] = {
    "llama": llama_sizes,
    "olmoe": olmoe_sizes,
    "phimoe": phimoe_sizes,
    "gpt2": gpt2_sizes,
}
