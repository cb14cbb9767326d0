"""The space of routing designs: a design is one choice per axis, and a paper's system is one design.

Sources: Lory (Zhong et al., 2024), "Towards an empirical understanding of MoE design choices" (Fan et al.,
2024), Autonomy of Experts (Lv et al., 2025), ReMoE (Wang et al., 2024), DeepSeek-V3 (2024) and GRIN (Liu et
al., 2024), whose gates are Phi-3.5-MoE's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from loriini.common.checks import (
    Bounds,
    Count,
    CountOrZero,
    Fraction,
    Positive,
    Weight,
    is_finite,
    refuse_first,
    wrong_fields,
)
from loriini.common.settings import Needs, setting, settings_of
from loriini.routing.registry import AXES, COMPARES_UNITS, REGISTERED, Registered, wrong_options

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
UNTRAINED = ("frozen", "random", "label", "activation_norm")
"""Scorers without weights that are trained."""
COUNTED = ("all", "top_k", "expert_choice")
"""Selections of a known number of experts, for each unit or on average."""
RENORMALISED = ("softmax_selected", "softmax_twice", "sigmoid")
"""Gates that sum to 1 over the selected experts, so that the gate of a single one is always 1."""
AUXILIARY_LOSSES = ("load_balance", "confidence_entropy", "router_z", "gate_l1")


def _choice(field: str, value: str) -> Needs:
    """The condition that a design's `field` has this value."""
    return Needs(f"--routing.{field} {value}", lambda design: getattr(design, field) == value)


@dataclass(frozen=True)
class RoutingConfig:
    """A routing design; `loriini train RECIPE --help` explains its fields. ValueError if they do not fit."""

    unit: Unit = "segment"
    """The tokens that share one routing decision: a single `token`; a `segment`, routed by the segment before
    it; all segments, routed by the first (`prefix`); or the whole `sequence`."""
    segment_length: Count = setting(
        256,
        needs=Needs(
            "a design with segments", lambda design: design.segmented or design.scorer == "linear_segment"
        ),
    )
    """Tokens of a segment, T."""
    first_segment: FirstSegment = setting("self", needs=Needs("segments", lambda design: design.segmented))
    """How segment 1 is routed: by its own mean with the gradient stopped (`self`, as in Lory; its tokens see
    their own future), with equal weights (`uniform`), or as `self` with segment 1 left out of the training
    loss (`skip_loss`)."""
    scope: Scope = "layer"
    """Every layer decides (`layer`), or the first layer decides for all (`global`)."""
    scorer: Scorer | Annotated[str, Registered("scorer")] = "linear"
    """How each expert's logit is computed: by a matrix that is trained (`linear`), never trained (`frozen`)
    or redrawn every training step (`random`); by two layers (`mlp`); by one matrix for the token's state and
    another for the previous segment's mean (`linear_segment`); from `routing_labels` (`label`); or by the
    norm of the expert's own activation (`activation_norm`)."""
    scorer_width: CountOrZero = setting(0, needs=_choice("scorer", "mlp"))
    """Hidden width of the `mlp` scorer; 0: the model's width."""
    norm: Literal[1, 2, "inf"] = setting(2, needs=_choice("scorer", "activation_norm"))
    """Which norm `activation_norm` takes: L1, L2 or L∞."""
    node: Literal["low_rank", "gate", "up", "activated_gate", "hidden", "output"] = setting(
        "low_rank", needs=_choice("scorer", "activation_norm")
    )
    """The activation whose norm scores an expert under `activation_norm`."""
    selection: Selection | Annotated[str, Registered("selection")] = "all"
    """Which experts a unit gets: `all`; the `top_k`; the fewest whose softmax weights reach `top_p`; those
    that choose it (`expert_choice`); or those with a positive logit (`positive`)."""
    top_k: Count = setting(
        2,
        needs=Needs(
            "--routing.selection top_k, top_p or positive",
            lambda design: design.selection == "top_k" or design.experts_vary,
        ),
    )
    """Experts per unit with selection=top_k; where their number varies (top_p, positive), the number for
    which models are sized and experts' initial weights scaled."""
    top_p: Annotated[float, Bounds(above=0, most=1)] = setting(0.6, needs=_choice("selection", "top_p"))
    """Sum of softmax weights that a unit's experts reach with selection=top_p."""
    capacity_factor: Positive = setting(1.0, needs=_choice("selection", "expert_choice"))
    """Mean number of experts per unit with selection=expert_choice."""
    gates: Gates | Annotated[str, Registered("gates")] = "softmax_all"
    """The weights of the selected experts: the softmax over all experts (`softmax_all`: Lory, Switch,
    Expert Choice); the softmax over the selected logits (`softmax_selected`: Mixtral, AoE); the softmax of
    the selected probabilities (`softmax_twice`: sequence-level top-2 of the design-choices paper); equal
    (`uniform`); the positive logits (`relu`: ReMoE); the normalised sigmoids of the selected logits
    (`sigmoid`: DeepSeek-V3); or a softmax over each expert and those close below it (`sparse_mixer`:
    Phi-3.5-MoE)."""
    jitter: Fraction = setting(0.01, needs=_choice("gates", "sparse_mixer"))
    """With gates=sparse_mixer, logits up to twice this relative distance below another are close to it."""
    balance_bias: Fraction = 0.0
    """The step size of loss-free balancing. Each expert's bias, used for selection but not for gates, moves
    by this much towards an even load after every optimizer step; 0: no bias."""
    num_shared_experts: CountOrZero = 0
    """Ungated experts that every token passes through besides its routed ones."""
    combination: Combination = "parameters"
    """Whether gates weigh the experts' `outputs` or their `parameters`."""
    load_balance: Weight = 0.0
    """Weight of the loss E · Σ f P, which evens the load; 0: off."""
    confidence_entropy: Weight = 0.0
    """Weight of the mean entropy of the softmax of router logits, which makes decisions confident; 0: off."""
    router_z: Weight = 0.0
    """Weight of the mean squared logsumexp of router logits; 0: off."""
    gate_l1: Weight = 0.0
    """Weight of the mean sum of a unit's gates, which makes ReLU gates sparse; 0: off."""
    options: dict[str, float] = field(default_factory=dict, hash=False)
    """Numbers that an extension's scorer, selection and gates read, and weights of its losses, by name."""

    def __post_init__(self) -> None:
        for name, value, expected in wrong_fields(self):
            raise ValueError(f"routing.{name} is {value!r}; it must be {expected}")
        options = {n: float(v) if type(v) is int and is_finite(v) else v for n, v in self.options.items()}
        object.__setattr__(self, "options", options)  # a copy, which no caller can change
        refuse_first(_conflicts(self), ValueError)

    def to_dict(self) -> dict[str, Any]:
        """The design as a JSON object; `RoutingConfig(**object)` restores it."""
        return asdict(self)

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weights of the auxiliary losses that are not 0."""
        weights = {name: getattr(self, name) for name in AUXILIARY_LOSSES}
        weights |= {name: self.options.get(name, 0.0) for name in REGISTERED["loss"]}
        return {name: weight for name, weight in weights.items() if weight != 0}

    @property
    def compares_units(self) -> bool:
        """Whether in training a unit's experts depend on the other units of a micro-batch."""
        return self.selection in COMPARES_UNITS

    @property
    def segmented(self) -> bool:
        """Whether units are segments."""
        return self.unit in ("segment", "prefix")

    def unit_length(self, length: int) -> int:
        """The most tokens that a unit has in a sequence of `length` tokens."""
        longer = min(self.segment_length, length) if self.segmented else length
        return 1 if self.unit == "token" else longer

    @property
    def pooled(self) -> bool:
        """Whether a unit has several tokens, or is routed by the mean of a segment."""
        return self.unit != "token" or self.scorer == "linear_segment"

    @property
    def soft(self) -> bool:
        """Whether every unit is given every expert."""
        return self.selection == "all"

    @property
    def constant_gates(self) -> bool:
        """Whether the gates are always 1/E, so that the mixture is a dense model."""
        return self.soft and self.gates == "uniform"

    @property
    def gates_sum_to_one(self) -> bool:
        """Whether the gates of a unit that selects any expert always sum to 1."""
        return self.gates in (*RENORMALISED, "uniform") or (self.soft and self.gates == "softmax_all")

    @property
    def trains_router(self) -> bool:
        """Whether a gradient reaches the scorer's weights, through gates that vary or an auxiliary loss."""
        alone = self.selection == "top_k" and self.top_k == 1 and self.gates in RENORMALISED
        constant = self.gates == "uniform" or alone
        by_losses = bool(self.loss_weights.keys() - {"gate_l1"})
        return self.scorer not in UNTRAINED and not self.constant_gates and (not constant or by_losses)

    @property
    def data_dependent(self) -> bool:
        """Whether gates depend on the tokens."""
        return self.scorer != "label" and not self.constant_gates

    @property
    def causality(self) -> Causality:
        """Which tokens' outputs never depend on later tokens, in `model.eval()`."""
        if not self.data_dependent or self.unit == "token":
            return "strict"
        if self.unit == "sequence":
            return "none"
        uniform_first = self.first_segment == "uniform" and self.unit == "segment"
        return "strict" if uniform_first else "after_first_segment"

    @property
    def training_causality(self) -> Causality:
        """`causality` in `model.train()`, where expert choice compares a unit with later ones."""
        return "none" if self.compares_units and self.data_dependent else self.causality

    @property
    def preserves_dense(self) -> bool:
        """Whether a mixture of equal experts computes what one of them does, as a dense warm-up needs."""
        if self.num_shared_experts:
            return False
        never_empty = self.selection in ("all", "top_k", "top_p")
        return never_empty and self.gates_sum_to_one and self.scorer != "activation_norm"

    @property
    def experts_vary(self) -> bool:
        """Whether a unit may select any number of experts; active parameters and FLOPs then count all."""
        return self.selection not in COUNTED

    def experts_per_token(self, num_experts: int) -> float:
        """How many routed FFNs a token passes through: 1 if merged or dense, else those its unit selects.

        For expert choice the mean number; `num_experts` where any number may be selected.
        """
        if num_experts == 1 or self.combination == "parameters":
            return 1
        if self.selection == "expert_choice":
            return self.capacity_factor
        return min(self.top_k, num_experts) if self.selection == "top_k" else num_experts

    def active_ffns(self, num_experts: int) -> float:
        """The width, in FFNs, of a dense model of the same active size: shared plus routed experts (`top_k`
        where any number may be selected)."""
        if num_experts == 1:
            return 1
        routed = self.experts_per_token(num_experts)
        return (min(routed, self.top_k) if self.experts_vary else routed) + self.num_shared_experts


def causality_warning(design: RoutingConfig, training: bool = False) -> str | None:
    """A sentence warning that tokens see later ones; None for causal designs.

    None also for designs that leak within segment 1 only: their perplexity leaves that segment out.
    """
    if design.causality == "none":
        return (
            "this design is not causal: a token's experts depend on its whole sequence, later tokens "
            "included, so its loss and perplexity are not comparable with a causal model's"
        )
    if training and design.training_causality == "none":
        return (
            "this design is not causal in training: experts choose among the tokens of a whole batch, later "
            "ones included, so its training loss is not comparable with others'; in evaluation it is "
            f"{design.causality}"
        )
    return None


def router_warning(design: RoutingConfig, num_experts: int) -> str | None:
    """A sentence warning that a mixture routes nothing, or that no gradient reaches its router; else None."""
    if num_experts == 1 or design.scorer in UNTRAINED or design.trains_router:
        return None
    if design.constant_gates:
        return (
            f"this design is a dense model that averages {num_experts} experts, whatever the input; for an "
            "ordinary one give --model.num_experts 1"
        )
    return (
        "no gradient reaches the router, which stays as it is drawn: its gates do not vary with its logits; "
        "set --routing.gates softmax_all or an auxiliary loss, or say --routing.scorer frozen"
    )


NEEDS = {name: setting.needs for name, setting in settings_of(RoutingConfig).items() if setting.needs}


def without_effect(design: RoutingConfig) -> set[str]:
    """The fields that have no effect on this design."""
    return {name for name, needed in NEEDS.items() if not needed.met(design)}


def _conflicts(c: RoutingConfig) -> Iterator[str]:
    """Combinations of fields that have no meaning."""
    yield from wrong_options(c.options, {axis: getattr(c, axis) for axis in AXES})
    if c.combination == "parameters" and c.unit == "token":
        yield (
            "unit=token with combination=parameters would merge one FFN for every token; "
            "use a longer unit or combination=outputs"
        )
    if c.scope == "global" and c.scorer == "activation_norm":
        yield "scope=global with scorer=activation_norm: norms say nothing about another layer's experts"
    if c.scorer == "activation_norm" and (c.unit != "token" or c.combination == "parameters"):
        yield (
            "scorer=activation_norm scores tokens by their own activations; "
            "it needs unit=token, combination=outputs"
        )
    if c.scorer == "linear_segment" and c.unit != "token":
        yield "scorer=linear_segment adds a segment's logits to each token's; it needs unit=token"
    for loss in c.loss_weights:
        if c.constant_gates or c.scorer == "label":
            where = "selection=all, gates=uniform" if c.constant_gates else f"scorer={c.scorer}"
            yield f"{loss} is constant with {where}, where nothing is learnt from it; set it to 0"
    if c.load_balance != 0 and c.selection in ("all", "expert_choice"):
        yield f"load_balance is constant with selection={c.selection}, where loads are fixed; set it to 0"
    if c.gate_l1 != 0 and c.gates_sum_to_one:
        yield (
            f"gate_l1 is constant with gates={c.gates}, selection={c.selection}: they sum to 1; set it to 0"
        )
    if c.first_segment == "uniform" and (c.unit != "segment" or c.selection != "all"):
        yield "first_segment=uniform gives segment 1 every expert; it needs unit=segment, selection=all"
    if c.unit == "prefix" and c.first_segment != "self":
        yield "unit=prefix routes every segment by segment 1; it needs first_segment=self"
    if c.gates == "relu" and c.selection != "positive":
        yield f"gates=relu is 0 for experts that selection={c.selection} may choose; set selection=positive"
    if c.gates == "sparse_mixer" and c.selection != "top_k":
        yield (
            "gates=sparse_mixer weighs experts from the best down, and "
            f"selection={c.selection} may choose others; set selection=top_k"
        )
    if c.balance_bias != 0 and (c.selection != "top_k" or c.gates != "sigmoid"):
        yield "balance_bias is added to sigmoid scores for top_k; it needs selection=top_k, gates=sigmoid"


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
    "aoe-top-p": replace(_aoe, selection="top_p", confidence_entropy=1e-4, load_balance=0.0),
    "aoe-ec": replace(_aoe, selection="expert_choice", capacity_factor=2.0, load_balance=0.0),
    "token-top-p": replace(_mixtral, selection="top_p", confidence_entropy=1e-4),
    "token-ec2": replace(_expert_choice, capacity_factor=2.0),
    "deepseek-v3": replace(_sparse, gates="sigmoid", balance_bias=0.001, num_shared_experts=1),
    "relu": replace(_sparse, selection="positive", gates="relu", gate_l1=0.01),
}


def design_name(routing: RoutingConfig) -> str:
    """The name in `DESIGNS` of a design, or "a design of its own".

    Segment length, weights of losses, `balance_bias`, options and fields without effect may differ.
    """
    ignored = {"segment_length", *AUXILIARY_LOSSES, "balance_bias", "options", *without_effect(routing)}
    fields = routing.to_dict().keys() - ignored
    same = (
        name
        for name, design in DESIGNS.items()
        if all(getattr(design, field) == getattr(routing, field) for field in fields)
    )
    return next(same, "a design of its own")


def design_and_fields(value: Any, base: RoutingConfig) -> tuple[RoutingConfig, dict[str, Any]]:
    """The design that a name or a table of fields starts from, and the fields that it changes.

    A table's `design` names the one to start from; without it that is `base`. Fields are not checked.
    ValueError for an unknown design, which lists all.
    """
    table = {"design": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError(f"routing is {value!r}; it must be a design's name or a table of its fields")
    fields = {name: part for name, part in table.items() if name != "design"}
    design = DESIGNS.get(str(table["design"])) if "design" in table else base
    if design is None:
        raise ValueError(f"there is no design {table['design']!r}; there are: {', '.join(DESIGNS)}")
    return design, fields
