"""The space of routing designs: a design is a row of choices, and a paper's system is one row.

Sources: Lory (Zhong et al., 2024), "Towards an empirical understanding of MoE design choices" (Fan et al.,
2024), Autonomy of Experts (Lv et al., 2025), ReMoE (Wang et al., 2024), DeepSeek-V3 (2024) and GRIN (Liu et
al., 2024), whose gates are Phi-3.5-MoE's.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args, get_type_hints

Unit = Literal["token", "segment", "prefix", "sequence"]
Scope = Literal["layer", "global"]
Scorer = Literal["linear", "linear_segment", "mlp", "frozen", "random", "label", "activation_norm"]
Selection = Literal["all", "top_k", "top_p", "expert_choice", "positive"]
Gates = Literal[
    "softmax_all", "softmax_selected", "softmax_twice", "uniform", "relu", "sigmoid", "sparse_mixer"
]
Combination = Literal["outputs", "parameters"]
FirstSegment = Literal["self", "uniform", "skip_loss"]
Causality = Literal["strict", "after_first_segment", "none"]


@dataclass(frozen=True)
class RoutingConfig:
    """One routing design. What may not combine is refused here, with the reason (ValueError).

    - `unit`: what gets one decision: a token, a segment of `segment_length` tokens (routed by the segment
      before it), every segment by the first (`prefix`), or the whole sequence.
    - `first_segment`: what routes segment 1: its own mean with the gradient stopped (`self`, Lory's, which
      lets its tokens see their own future), equal weights (`uniform`), or `self` with segment 1 left out of
      the loss (`skip_loss`).
    - `scope`: every layer decides, or the first layer decides for all (`global`).
    - `scorer`: what gives each expert its logit; `norm` and `node` belong to `activation_norm`,
      `scorer_width` is the hidden width of `mlp` (0: the model's). `linear_segment` adds a token's logits
      and those of the segment before its own.
    - `selection`: which experts a unit gets; `top_k`, `top_p` and `capacity_factor` belong to it.
    - `gates`: their weights: the softmax over all experts, kept where selected (`softmax_all`: Lory, Switch,
      Expert Choice); the softmax over the selected logits (`softmax_selected`: Mixtral, AoE); the softmax of
      the selected probabilities (`softmax_twice`: sequence-level top-2 of the design-choices paper); equal
      (`uniform`); the positive logits themselves (`relu`: ReMoE); the sigmoids of the selected logits, made
      to sum to 1 (`sigmoid`: DeepSeek-V3); or each one's softmax among those that come close behind it, by
      `jitter` (`sparse_mixer`: Phi-3.5-MoE).
    - `balance_bias`: the step of loss-free balancing: after every optimizer step each expert's bias, which
      counts in the selection and not in the gates, moves this much towards an even load; 0: no bias.
    - `num_shared_experts`: experts that every token passes through besides its own, without a gate.
    - `combination`: gates weigh the experts' `outputs` or their `parameters`.
    - `load_balance`, `confidence_entropy`, `router_z`, `gate_l1`: weights of the auxiliary losses.
    """

    unit: Unit = "segment"
    segment_length: int = 256
    first_segment: FirstSegment = "self"
    scope: Scope = "layer"
    scorer: Scorer = "linear"
    scorer_width: int = 0
    norm: Literal[1, 2, "inf"] = 2
    node: Literal["low_rank", "gate", "up", "activated_gate", "hidden", "output"] = "low_rank"
    selection: Selection = "all"
    top_k: int = 2
    top_p: float = 0.6
    capacity_factor: float = 1.0
    gates: Gates = "softmax_all"
    jitter: float = 0.01
    balance_bias: float = 0.0
    num_shared_experts: int = 0
    combination: Combination = "parameters"
    load_balance: float = 0.0
    confidence_entropy: float = 0.0
    router_z: float = 0.0
    gate_l1: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            if get_args(kind) and getattr(self, name) not in get_args(kind):
                allowed = ", ".join(map(str, get_args(kind)))
                raise ValueError(f"routing.{name} is {getattr(self, name)!r}; it is one of: {allowed}")
        for refused, reason in _refusals(self):
            if refused:
                raise ValueError(reason)

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object; `RoutingConfig(**it)` is the way back."""
        return asdict(self)

    @property
    def segmented(self) -> bool:
        """Whether decisions belong to segments."""
        return self.unit in ("segment", "prefix")

    @property
    def pooled(self) -> bool:
        """Whether a decision looks at other tokens than the one it is for."""
        return self.unit != "token" or self.scorer == "linear_segment"

    @property
    def fixed(self) -> bool:
        """Whether the gates are 1/E whatever the logits: the mixture is then a dense model."""
        return self.selection == "all" and self.gates == "uniform"

    @property
    def data_dependent(self) -> bool:
        """Whether gates depend on the tokens at all."""
        return self.scorer != "label" and not self.fixed

    @property
    def causality(self) -> Causality:
        """Which tokens' outputs never depend on later tokens, in `model.eval()`."""
        if not self.data_dependent or self.unit == "token":
            return "strict"
        if self.unit == "sequence":
            return "none"
        return (
            "strict" if self.first_segment == "uniform" and self.unit == "segment" else "after_first_segment"
        )

    @property
    def training_causality(self) -> Causality:
        """The same in `model.train()`, where expert choice compares units with later ones."""
        chooses = self.selection == "expert_choice" and self.data_dependent
        return "none" if chooses else self.causality

    @property
    def preserves_dense(self) -> bool:
        """Whether equal experts compute what one of them does, so that a dense model can be copied in."""
        if self.num_shared_experts:
            return False
        never_empty = self.selection in ("all", "top_k", "top_p")
        sums_to_one = self.selection == "all" or self.gates not in ("softmax_all", "sparse_mixer")
        return never_empty and sums_to_one and self.scorer != "activation_norm"


def not_causal(design: RoutingConfig, training: bool = False) -> str | None:
    """What a reader must know of a mixture whose tokens see later ones, in a sentence; None for the others.

    Those that leak in segment 1 alone count as causal: their perplexity leaves it out.
    """
    if design.causality == "none":
        return (
            "this design is not causal: a token's experts depend on its whole sequence, later tokens "
            "included, so neither loss nor perplexity compares with a causal model's"
        )
    if training and design.training_causality == "none":
        return (
            "this design is not causal in training: experts choose among the tokens of a whole batch, later "
            f"ones included, so its training loss compares with no other's; in evaluation it is "
            f"{design.causality}"
        )
    return None


def _refusals(c: RoutingConfig) -> list[tuple[bool, str]]:
    """(refused, reason) for every rule of the space."""
    pooled = c.unit != "token"
    return [
        (
            c.combination == "parameters" and not pooled,
            "unit=token with combination=parameters would merge one FFN for every token; "
            "use a longer unit or combination=outputs",
        ),
        (
            c.scope == "global" and c.scorer == "activation_norm",
            "scope=global with scorer=activation_norm: norms say nothing of another layer's experts",
        ),
        (
            c.scorer == "activation_norm" and (pooled or c.combination == "parameters"),
            "scorer=activation_norm scores tokens by their own activations; "
            "it needs unit=token, combination=outputs",
        ),
        (
            c.scorer == "linear_segment" and c.unit != "token",
            "scorer=linear_segment adds a segment's logits to each token's; it needs unit=token",
        ),
        (
            c.load_balance != 0 and c.selection in ("all", "expert_choice"),
            f"load_balance is constant with selection={c.selection}, where loads are fixed; set it to 0",
        ),
        (
            c.first_segment == "uniform" and (c.unit != "segment" or c.selection != "all"),
            "first_segment=uniform gives segment 1 every expert; it needs unit=segment, selection=all",
        ),
        (
            c.unit == "prefix" and c.first_segment != "self",
            "unit=prefix routes every segment by segment 1; it needs first_segment=self",
        ),
        (
            c.gates == "relu" and c.selection != "positive",
            f"gates=relu is 0 for experts that selection={c.selection} may choose; set selection=positive",
        ),
        (
            c.gates == "sparse_mixer" and c.selection != "top_k",
            f"gates=sparse_mixer weighs the best of a unit, one after the other, and selection={c.selection} "
            "may choose others; set selection=top_k",
        ),
        (c.jitter < 0, f"jitter is {c.jitter}; it must not be negative"),
        (
            c.balance_bias != 0 and (c.selection != "top_k" or c.gates != "sigmoid"),
            "balance_bias is added to sigmoid scores for top_k; it needs selection=top_k, gates=sigmoid",
        ),
        (c.balance_bias < 0, f"balance_bias is {c.balance_bias}; it must not be negative"),
        (c.num_shared_experts < 0, f"num_shared_experts is {c.num_shared_experts}; it must not be negative"),
        (c.segment_length < 1, f"segment_length is {c.segment_length}; it must be at least 1"),
        (c.scorer_width < 0, f"scorer_width is {c.scorer_width}; it must be at least 0"),
        (c.top_k < 1, f"top_k is {c.top_k}; it must be at least 1"),
        (not 0 < c.top_p <= 1, f"top_p is {c.top_p}; it must be in (0, 1]"),
        (c.capacity_factor <= 0, f"capacity_factor is {c.capacity_factor}; it must be positive"),
    ]


_lory = RoutingConfig()
_sparse = RoutingConfig(unit="token", selection="top_k", gates="softmax_selected", combination="outputs")
_mixtral = replace(_sparse, load_balance=0.01)
_expert_choice = replace(_sparse, selection="expert_choice", gates="softmax_all")
_top1 = replace(_sparse, scorer="mlp", top_k=1, gates="softmax_all")
_sequence = replace(_sparse, unit="sequence", scorer="mlp", gates="softmax_twice")
_aoe = replace(_sparse, scorer="activation_norm", load_balance=0.01)

DESIGNS: dict[str, RoutingConfig] = {
    "dense": replace(_lory, unit="sequence", gates="uniform"),
    "lory": _lory,
    "lory-top2": replace(_lory, selection="top_k", gates="softmax_selected"),
    "segment-then-token": replace(_mixtral, scorer="linear_segment"),
    "prefix": replace(_lory, unit="prefix"),
    "smear": replace(_lory, unit="sequence"),
    "ec-token": _expert_choice,
    "ec-segment": replace(_expert_choice, unit="segment"),
    "switch": replace(_top1, load_balance=0.01),
    "mixtral": _mixtral,
    "sequence-top1": replace(_top1, unit="sequence"),
    "sequence-top2": _sequence,
    "global-top1": replace(_top1, unit="sequence", scope="global"),
    "global-top2": replace(_sequence, scope="global"),
    "frozen": replace(_sparse, scorer="frozen"),
    "random": replace(_sparse, scorer="random"),
    "label": replace(_sparse, unit="sequence", scorer="label", top_k=1),
    "aoe": _aoe,
    "aoe-top-p": replace(_aoe, selection="top_p", confidence_entropy=1e-4),
    "aoe-ec": replace(_aoe, selection="expert_choice", capacity_factor=2.0, load_balance=0.0),
    "token-top-p": replace(_mixtral, selection="top_p", confidence_entropy=1e-4),
    "token-ec2": replace(_expert_choice, capacity_factor=2.0),
    "deepseek-v3": replace(_sparse, gates="sigmoid", balance_bias=0.001, num_shared_experts=1),
    "relu": replace(_sparse, selection="positive", gates="relu", gate_l1=0.01),
}
