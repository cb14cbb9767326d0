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
    *settings_of_kind(Architecture, "training"),
    *("routing", "recompute_merge", "label_names", "attention_dropout", "use_cache", "pretraining_tp"),
    *("rope_parameters", "max_position_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"),
}
"""Fields on which no weights depend: those of routing, training, texts and rotary positions."""


def copy_into_experts(dense: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture of `config` whose experts are copies of the dense model's FFN (Lory §4.1, appendix G.3).

    Everything else is copied too; routers are newly initialised. The mixture computes what the dense model
    does, at the rotary positions of `config`. ValueError for a design where it would not (shared experts,
    gates that do not sum to 1), for factorised experts, which are no copies of an ordinary FFN, and for
    another architecture.
    """
    if problem := copy_problem(dense.config, config):
        raise ValueError(problem)
    return _carried(dense, config, routers=False)


def copy_problem(dense: LoriiniConfig, config: LoriiniConfig) -> str | None:
    """Why a model of `dense` cannot be copied into the experts of `config`; None if it can."""
    if dense.is_mixture:
        return f"the model to copy has {dense.num_experts} experts; it must be dense (1)"
    design = config.routing
    if not design.preserves_dense:
        return (
            "copies of its FFN need a router, no shared experts and gates that sum to 1; "
            f"selection={design.selection} with gates={design.gates} and scorer={design.scorer} trains from "
            "scratch"
        )
    return _difference(dense, config, MAY_DIFFER | {"num_experts"})


def _difference(model: LoriiniConfig, config: LoriiniConfig, may_differ: set[str]) -> str | None:
    """The first field because of which weights of one configuration do not fit the other; None: they fit."""
    unread = {"layer_norm_epsilon"}
    if model.block == config.block == "gpt2":
        unread = {"rms_norm_eps"}
        may_differ = may_differ - {"max_position_embeddings"}  # learned
    ignored = {*may_differ, *unread, *(field.name for field in fields(PreTrainedConfig))}
    for name in (field.name for field in fields(LoriiniConfig) if field.name not in ignored):
        ours, theirs = getattr(config, name), getattr(model, name)
        if ours != theirs:
            return f"{name} is {ours!r}, but the model's is {theirs!r}; give the same"
    return None


def change_design(mixture: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture's weights in another design, for further training.

    Routers are kept if `keeps_routers` allows it, as from soft to top-k selection, else newly initialised.
    ValueError for another number of experts or shared experts, and for another architecture.
    """
    theirs, ours = mixture.config.routing, config.routing
    if problem := _difference(mixture.config, config, MAY_DIFFER):
        raise ValueError(problem)
    if theirs.num_shared_experts != ours.num_shared_experts:
        raise ValueError(
            f"routing.num_shared_experts is {ours.num_shared_experts}, "
            f"but the mixture has {theirs.num_shared_experts}"
        )
    return _carried(mixture, config, keeps_routers(theirs, ours))


def _carried(model: LoriiniForCausalLM, config: LoriiniConfig, routers: bool) -> LoriiniForCausalLM:
    """A new model of `config` with the weights, dtype, device, mode and attention kernel of `model`.

    A dense model's FFN is copied into every expert. Tensors that `model` lacks are newly initialised; without
    `routers`, all routers are.
    """
    carried = LoriiniForCausalLM._from_config(
        config, dtype=model.dtype, attn_implementation=model.config._attn_implementation
    ).to(model.device)
    kept = model.state_dict()
    new = set() if routers else names_within(carried, Router)
    weights = {
        name: kept[name].expand_as(weight) if name in kept and name not in new else weight
        for name, weight in carried.state_dict().items()
    }
    carried.load_state_dict(weights)
    return carried.train(model.training)


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
