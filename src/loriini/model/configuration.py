"""The model's configuration: a Llama's, a number of experts, and a row of the routing space."""

from collections.abc import Mapping
from typing import Any

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

    With `low_rank` r the experts' gate projection is factorised through r dimensions, as AoE's are, and their
    width is `expert_width`, which keeps the parameters of an expert of `intermediate_size`. A design scored
    by the norm of low-rank activations needs one; its default is a third of the hidden size.
    """

    model_type = "loriini"
    base_model_tp_plan = None

    num_experts: int = 8
    low_rank: int | None = None
    routing: Any = "lory"
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.routing = resolve_routing(self.routing)
        if self.num_experts < 1:
            raise ValueError(f"num_experts is {self.num_experts}; it must be at least 1")
        if self.routing.selection == "top_k" and self.routing.top_k > self.num_experts > 1:
            raise ValueError(f"top_k is {self.routing.top_k} but num_experts is {self.num_experts}")
        if (
            self.low_rank is not None
            and self.routing.scorer == "activation_norm"
            and self.routing.node != "low_rank"
        ):
            raise ValueError(f"node={self.routing.node} is a node of ordinary experts; set low_rank to None")
        if self.low_rank is None and self._scored_by_low_rank():
            self.low_rank = max(8, self.hidden_size // 3 // 8 * 8)
        super().__post_init__(**kwargs)

    def _scored_by_low_rank(self) -> bool:
        return self.routing.scorer == "activation_norm" and self.routing.node == "low_rank"

    @property
    def expert_width(self) -> int:
        """Each expert's width: f, or f_wide = (3df - rd) / (r + 2d) to the nearest 8 (AoE section 3.2)."""
        d, f, r = self.hidden_size, self.intermediate_size, self.low_rank
        return f if r is None else round((3 * d * f - r * d) / (r + 2 * d) / 8) * 8

    @property
    def num_shared_experts(self) -> int:
        """Experts of `intermediate_size` that every token passes through; none in a dense model."""
        return self.routing.num_shared_experts if self.num_experts > 1 else 0

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

        A merged FFN counts once. With top_p and positive the number of experts varies; all are counted.
        """
        d, f, layers = self.hidden_size, self.intermediate_size, self.num_hidden_layers
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        head_dim = self.head_dim or d // heads
        attention = 2 * d * head_dim * (heads + kv_heads)
        embeddings = self.vocab_size * d * (1 if self.tie_word_embeddings else 2)
        rest = embeddings + d + layers * (attention + 2 * d) + self._router_parameters()
        rest += layers * self.num_shared_experts * 3 * d * f
        r, wide = self.low_rank or 0, self.expert_width
        low = r * d  # AoE's unselected experts compute this much too
        expert = low + r * wide + 2 * d * wide if r else 3 * d * f
        active = expert * self.experts_per_token
        if self._scored_by_low_rank():
            active += low * (self.num_experts - self.experts_per_token)
        return rest + layers * expert * self.num_experts, rest + round(layers * active)

    def _router_parameters(self) -> int:
        linear = self.hidden_size * self.num_experts
        sizes = {
            "linear": linear,
            "linear_segment": 2 * linear,
            "frozen": linear,
            "mlp": linear + self.hidden_size**2,
        }
        routers = self.num_hidden_layers if self.routing.scope == "layer" else 1
        routed = self.num_experts > 1 and not self.routing.fixed
        return routers * sizes.get(self.routing.scorer, 0) if routed else 0

    def flops_per_token(self, length: int) -> float:
        """Training FLOPs a token (forward and backward, 6 a weight), attention and merging included.

        Attention over `length` positions counts the causal half; merging costs E/T of the FFN (Lory
        appendix B), or E/`length` where a whole sequence is one unit.
        """
        _, active = self.parameters()
        matmuls = active - self.vocab_size * self.hidden_size
        attention = self.num_hidden_layers * self.hidden_size * length
        merging = 0.0
        if self.num_experts > 1 and self.routing.combination == "parameters":
            span = self.routing.segment_length if self.routing.segmented else length
            ffn = 3 * self.hidden_size * self.intermediate_size
            merging = self.num_hidden_layers * ffn * self.num_experts / span
        return 6 * (matmuls + attention + merging)
