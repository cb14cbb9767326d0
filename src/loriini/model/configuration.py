"""The model's configuration: a kind of transformer block, a number of experts and a routing design."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from huggingface_hub.dataclasses import strict
from transformers import LlamaConfig

from loriini.common.checks import Count, FractionBelowOne, mismatch, refuse_first
from loriini.model.architecture import Architecture
from loriini.model.rotary import rotary_problem
from loriini.model.weights.shim import AUTO_MAP, write_shim
from loriini.routing import DESIGNS, RoutingConfig
from loriini.routing.design import design_and_fields
from loriini.routing.scorer import RouterSettings

if TYPE_CHECKING:
    from loriini.model.sizes import Sizes


def resolve_routing(routing: "RoutingConfig | Mapping[str, Any] | str") -> RoutingConfig:
    """The design of a name, or of a JSON object of fields, whose `design` names the one to start from."""
    if isinstance(routing, RoutingConfig):
        return routing
    design, changes = design_and_fields(routing, RoutingConfig())
    known = [field.name for field in fields(RoutingConfig)]
    if unknown := [name for name in changes if name not in known]:
        raise ValueError(f"routing has no field {unknown[0]!r}; it has: {', '.join(known)}")
    return replace(design, **changes)


OUR_NAMES = {
    "num_local_experts": "num_experts",
    "n_routed_experts": "num_experts",
    "num_experts_per_tok": "routing's top_k",
    "router_aux_loss_coef": "routing's load_balance",
    "norm_topk_prob": "routing's gates (softmax_selected or softmax_all)",
}
"""transformers' names for settings of other mixtures → their names here."""


@strict
class LoriiniConfig(LlamaConfig):
    """A Llama whose FFNs are mixtures of `num_experts` FFNs of `intermediate_size` each.

    It has the fields of `Architecture`, which are explained there, those of `LlamaConfig`, and

    - `routing`: a `RoutingConfig`, its JSON object or a design's name. With one expert the model is a Llama.
    - `rope_parameters`: settings of rotary positions, as in `LlamaConfig`; not for block gpt2.
    - `recompute_merge`: the backward pass merges experts again instead of keeping the merged weights.
    - `label_names`: a name for each label of label routing; name i is routed to expert i.

    Raises ValueError for a field out of range and for fields that do not combine.
    """

    model_type = "loriini"
    base_model_tp_plan = None
    keys_to_ignore_at_inference = [  # noqa: RUF012
        "cache",
        "past_key_values",
        "auxiliary_loss",
        "routings",
        "cross_entropy",
        "output_z_loss",
    ]
    # Read by transformers' GPT2Attention, OlmoeAttention and Glm4MoeAttention.
    attribute_map = {"attn_pdrop": "dropout", "resid_pdrop": "dropout", "use_qk_norm": "qk_norm"}  # noqa: RUF012
    scale_attn_weights, scale_attn_by_inverse_layer_idx, reorder_and_upcast_attn = True, False, False
    clip_qkv = None

    block: str = "llama"
    qk_norm: str | None = None
    attention_out_bias: bool | None = None
    lm_head_bias: bool = False
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    expert_scale: str = "dense"
    num_experts: int = 8
    low_rank: int | None = None
    recompute_merge: bool = False
    output_z: float = 0.0
    routing: Any = "lory"
    label_names: list[str] | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; `routing` may be a name or an object of fields. ValueError for a wrong value."""
        if name == "routing":
            value = resolve_routing(value)
        elif name in FIELDS and (expected := mismatch(value, FIELDS[name])):
            raise ValueError(f"{name} is {value!r}; it must be {expected}")
        super().__setattr__(name, value)

    def __post_init__(self, **kwargs: Any) -> None:
        for name in kwargs:
            if ours := OUR_NAMES.get(name):
                raise TypeError(f"unexpected setting {name}; here it is {ours}")
            if name in RoutingConfig.__dataclass_fields__:
                raise TypeError(f"{name} is a field of the routing: routing=replace(DESIGNS[…], {name}=…)")
            near = get_close_matches(name, type(self).__dataclass_fields__, 1, cutoff=0.9)
            if near and not hasattr(type(self), name):
                raise TypeError(f"unexpected setting {name}; do you mean {near[0]}?")
        self.resolve()  # before LlamaConfig sets `head_dim`
        super().__post_init__(**kwargs)
        self.resolve()  # after LlamaConfig read rotary settings under their older names

    def resolve(self) -> None:
        """Derive settings that are None from others; ValueError for settings that do not fit each other.

        A model calls it again, since settings may have changed. A derived value stays even if the setting
        that it was derived from changes later.
        """
        if self.attention_out_bias is None:
            self.attention_out_bias = self.attention_bias
        if self.low_rank is None and self.scored_by_norm and not self.scored_by_whole_expert:
            self.low_rank = max(8, self.hidden_size // 3 // 8 * 8)
        refuse_first(_conflicts(self), ValueError)

    def validate_architecture(self) -> None:
        """Replaces LlamaConfig's check: with `head_dim`, heads need not divide the hidden size."""

    @property
    def is_mixture(self) -> bool:
        """Whether there are experts to choose from or to merge: more than one."""
        return self.num_experts > 1

    @property
    def design(self) -> RoutingConfig:
        """The design in effect: `routing`, or the dense design with one expert."""
        design: RoutingConfig = self.routing if self.is_mixture else DESIGNS["dense"]
        return design

    @property
    def merges(self) -> bool:
        """Whether experts are merged: a mixture combined by parameters."""
        return self.is_mixture and self.routing.combination == "parameters"

    @property
    def first_segment_length(self) -> int:
        """Tokens of segment 1, which evaluation leaves out by default; 0 without segments."""
        design = self.design
        return design.segment_length if design.segmented else 0

    @property
    def skipped_positions(self) -> int:
        """How many first positions the training loss leaves out: those of segment 1, with `skip_loss`."""
        return self.first_segment_length if self.design.first_segment == "skip_loss" else 0

    @property
    def scored_by_norm(self) -> bool:
        """Whether experts are scored by the norm of their own activations.

        A layer then calls its experts twice in a forward pass: to score themselves, then to compute.
        """
        return self.design.scorer == "activation_norm"

    @property
    def scored_by_whole_expert(self) -> bool:
        """Whether the score needs the whole expert, not only its low-rank projection."""
        return self.scored_by_norm and self.routing.node != "low_rank"

    @property
    def routed_by_label(self) -> bool:
        """Whether every call needs `routing_labels`."""
        return self.design.scorer == "label"

    @property
    def expert_width(self) -> int:
        """Each expert's width: f, or f_wide = (3df - rd) / (r + 2d) to the nearest 8 (AoE section 3.2)."""
        d, f, r = self.hidden_size, self.intermediate_size, self.low_rank
        return f if r is None else round((3 * d * f - r * d) / (r + 2 * d) / 8) * 8

    @property
    def num_shared_experts(self) -> int:
        """Experts of `intermediate_size` that every token passes through; none in a dense model."""
        return self.design.num_shared_experts

    @property
    def shared_width(self) -> int:
        """The width of a layer's shared experts, which are one FFN; 0: none."""
        return self.num_shared_experts * self.intermediate_size

    def to_dict(self) -> dict[str, Any]:
        """The configuration as a JSON object."""
        return {**super().to_dict(), "routing": self.routing.to_dict(), "auto_map": AUTO_MAP}

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """transformers' `from_dict`, whose keywords may change settings that others follow from."""
        made = super().from_dict(config_dict, **kwargs)
        config = made[0] if isinstance(made, tuple) else made
        config.resolve()  # transformers sets the keywords on a configuration that is already made
        return made

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write `config.json`, and next to it the modules by which transformers loads the model."""
        write_shim(Path(save_directory))
        super().save_pretrained(save_directory, push_to_hub, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Does nothing: transformers would copy this module next to the weights, in place of the shim."""

    @property
    def experts_per_token(self) -> float:
        """Routed FFNs of `intermediate_size` that a token passes through: its active experts."""
        return self.design.experts_per_token(self.num_experts)

    def router_settings(self, layer: int) -> RouterSettings:
        """What the router of a layer is built from."""
        std = self.initializer_range
        return RouterSettings(self.routing, self.hidden_size, self.num_experts, layer, std)

    def parameters(self) -> tuple[int, int]:
        """(total, active): parameters held, and those that one token's forward pass uses.

        A tied head counts once, and merged experts count as one in the active parameters. With top_p and
        positive, whose number of experts varies, all experts count as active.
        """
        sizes = self.sizes()
        return sizes.experts + sizes.layers + sizes.root, self._active(sizes)

    def _active(self, sizes: "Sizes") -> int:
        chosen = self.experts_per_token
        # unselected experts that score themselves compute up to their node too
        experts = sizes.expert * chosen + sizes.scored * (self.num_experts - chosen)
        return sizes.layers + sizes.root + round(self.num_hidden_layers * experts)

    def sizes(self) -> "Sizes":
        """Parameter counts by place, from a layer on the meta device, which every call builds."""
        from loriini.model.sizes import count_sizes  # which imports this module

        return count_sizes(self)

    def flops_per_token(self, length: int) -> float:
        """Training FLOPs per token (forward and backward, 6 per weight), attention and merging included.

        Embedding lookups cost nothing; a tied embedding counts as the head. Attention over `length` positions
        counts the causal half. Routing and merging are counted once per unit: merging costs E/T of the FFN
        (Lory appendix B), or E/`length` if a unit is a whole sequence.
        """
        sizes = self.sizes()
        attention = self.num_hidden_layers * self.num_attention_heads * self.head_dim * length
        routed = sizes.routers + (sizes.experts if self.merges else 0)
        once = self._active(sizes) - sizes.routers - sizes.looked_up + attention
        return 6 * (once + routed / self.routing.unit_length(length))


FIELDS: dict[str, Any] = {
    **get_type_hints(Architecture, include_extras=True),
    "vocab_size": Count,
    "max_position_embeddings": Count,
    "attention_dropout": FractionBelowOne | None,
}
"""What the fields of `LoriiniConfig` must be, beyond the types that transformers checks."""


def _conflicts(c: LoriiniConfig) -> Iterator[str]:
    """Combinations of fields that have no meaning, beyond those of routing."""
    yield from _conflicts_of_experts(c)
    yield from _conflicts_of_block(c)


def _conflicts_of_experts(c: LoriiniConfig) -> Iterator[str]:
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
    if c.expert_scale == "copies" and c.scored_by_norm:
        yield "expert_scale=copies gives all experts the same norm, by which they are told apart; use dense"
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


def _conflicts_of_block(c: LoriiniConfig) -> Iterator[str]:
    gpt2, heads = c.block == "gpt2", c.num_attention_heads
    key_value_heads, width = c.num_key_value_heads or heads, c.hidden_size // heads
    if c.hidden_size % heads != 0 and (gpt2 or c.head_dim is None):
        yield f"num_attention_heads is {heads}; it must divide hidden_size, which is {c.hidden_size}"
    if heads % key_value_heads != 0:
        yield (
            f"num_key_value_heads is {key_value_heads}; it must divide num_attention_heads, which is {heads}"
        )
    llama_only = {
        "attention_dropout": bool(c.attention_dropout),  # in gpt2 `dropout` is that of attention too
        "head_dim": c.head_dim not in (None, width),
        "num_key_value_heads": key_value_heads != heads,
        "qk_norm": c.qk_norm is not None,
        "attention_bias": c.attention_bias,
        "attention_out_bias": c.attention_out_bias,
    }
    for name, given in llama_only.items():
        if gpt2 and given:
            yield f"{name} is {getattr(c, name)}, which block=gpt2 does not have; use block=llama"
    if not gpt2 and c.dropout != 0:
        yield f"dropout is {c.dropout}, but block={c.block} has none; use block=gpt2"
    if c.qk_norm == "all" and c.head_dim not in (None, width):
        yield f"head_dim is {c.head_dim}, but qk_norm=all needs heads of hidden_size / num_attention_heads"
    if problem := rotary_problem(c.rope_parameters or {}, c.block):
        yield problem
    part = (c.rope_parameters or {}).get("partial_rotary_factor", 1)
    if part != 1 and (gpt2 or c.qk_norm == "all"):
        yield f"partial_rotary_factor is {part}, which block=gpt2 and qk_norm=all do not have; leave it out"
    rotated = int((c.head_dim or width) * part)
    if not gpt2 and (part > 1 or rotated < 2 or rotated % 2 != 0):
        yield f"head_dim · partial_rotary_factor is {rotated} of {c.head_dim or width}; make it even, above 0"
