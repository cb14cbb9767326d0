"""Conversion: a dense model copied into experts, and a mixture changed to another design."""

from dataclasses import fields, replace
from typing import Any

from transformers import PreTrainedConfig

from loriini.common.settings import settings_of_kind
from loriini.model.architecture import Architecture
from loriini.model.configuration import LoriiniConfig
from loriini.model.mixture import names_within
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import Router, RoutingConfig
from loriini.routing.registry import REGISTERED
from loriini.routing.router import built_from

MAY_DIFFER = {
    *(field.name for field in fields(PreTrainedConfig)),
    *settings_of_kind(Architecture, "training"),
    *("routing", "recompute_merge", "label_names", "attention_dropout", "use_cache", "pretraining_tp"),
    *("rope_parameters", "pad_token_id", "bos_token_id", "eos_token_id"),
}
"""Fields on which no weights depend: those of routing, training, texts and rotary positions."""


def check_conversion(theirs: LoriiniConfig, ours: LoriiniConfig) -> None:
    """ValueError where a model of one configuration cannot be `converted` to the other.

    Both have the same architecture and as many experts, shared ones too. A dense model can also become a
    mixture, if that then computes what the dense model does.
    """
    design, copied = ours.routing, ours.is_mixture and not theirs.is_mixture
    if copied and not design.preserves_dense:
        raise ValueError(
            "copies of a dense model's FFN need a router, no shared experts and gates that sum to 1; "
            f"selection={design.selection} with gates={design.gates} and scorer={design.scorer} trains from "
            "scratch; choose another routing, such as lory"
        )
    # GPT-2's positions are learned.
    unread = {"rms_norm_eps"} if ours.block == "gpt2" else {"layer_norm_epsilon", "max_position_embeddings"}
    may_differ = MAY_DIFFER | unread | ({"num_experts"} if copied else set())
    names = [field.name for field in fields(LoriiniConfig) if field.name not in may_differ]
    for name in (*names, "num_shared_experts"):
        here, there = getattr(ours, name), getattr(theirs, name)
        if here != there:
            raise ValueError(
                f"{name} is {here!r}, but the model's is {there!r}; give the same, or choose another design"
            )


def converted(model: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A new model of `config` with the weights, dtype, device, mode and attention kernel of `model`.

    A dense model's FFN is copied into every expert (Lory §4.1, appendix G.3); the mixture computes the same,
    at the rotary positions of `config`. Routers are kept if `keeps_routers` allows it, as from soft to top-k
    selection, else newly initialised. ValueError as `check_conversion` says.
    """
    check_conversion(model.config, config)
    made = LoriiniForCausalLM._from_config(
        config, dtype=model.dtype, attn_implementation=model.config._attn_implementation
    ).to(model.device)
    kept = model.state_dict()
    new = set() if keeps_routers(model.config.routing, config.routing) else names_within(made, Router)
    weights = {
        name: kept[name].expand_as(weight) if name in kept and name not in new else weight
        for name, weight in made.state_dict().items()
    }
    made.load_state_dict(weights)
    return made.train(model.training)


def keeps_routers(old: RoutingConfig, new: RoutingConfig) -> bool:
    """Whether routers of one design serve the other, since they score the same units in the same way."""
    before, after = built_from(old), built_from(new)
    changed = {name for name in before if before[name] != after[name]}
    return old.unit == new.unit and changed <= {"norm", "balance_bias"}  # neither has trained weights


def router_free(
    model: LoriiniForCausalLM, node: Any, norm: Any = 2, gates: Any = "softmax_selected"
) -> LoriiniForCausalLM:
    """Remove the routers of a token-level mixture, in place, and rank experts by their activations.

    Every expert computes up to `node`; a token gets the k experts of highest L1, L2 or L∞ `norm` there, and
    only these compute the rest (AoE §3.1, appendix A). The paper does not state the gates: choose a softmax
    over the selected norms, or `uniform`. ValueError for a node or design that does not allow this.
    """
    if not model.config.is_mixture:
        raise ValueError("a dense model has no routers to replace; leave it out")
    if node == "low_rank":
        raise ValueError("node=low_rank is a node of factorised experts, which are trained without a router")
    routing = model.config.routing
    if routing.selection == "positive":
        raise ValueError("every norm is above 0, so that selection=positive takes all experts; leave it out")
    read = {*REGISTERED["selection"].get(routing.selection, ()), *REGISTERED["gates"].get(gates, ())}
    options = {k: v for k, v in routing.options.items() if k in read | REGISTERED["loss"].keys()}
    changes = {"scorer": "activation_norm", "node": node, "norm": norm, "gates": gates, "options": options}
    design = replace(routing, **changes, balance_bias=0.0)
    LoriiniConfig(**{**model.config.to_dict(), "routing": design})  # raises where they do not go together
    model.config.routing = design
    for layer, mixture in enumerate(model.model.mixtures):
        mixture.router = Router(model.config.router_settings(layer)).train(model.training)
    return model
