"""Conversion: a dense model copied into experts, and a mixture in another design."""

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import RoutingConfig


def copy_into_experts(dense: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture of `config` whose experts are copies of the dense model's FFN (Lory §3.1, warm-up).

    Everything else is copied too; routers are newly initialised. The mixture computes what the dense model
    does. ValueError for a design where it would not (shared experts, gates that do not sum to 1), and for
    factorised experts, which an ordinary FFN does not give.
    """
    if problem := copy_problem(dense.config, config):
        raise ValueError(problem)
    mixture = LoriiniForCausalLM._from_config(config, dtype=dense.dtype).to(dense.device)
    source = dense.state_dict()
    target = mixture.state_dict()
    copied = {
        name: source[name].expand_as(weight) if name in source else weight for name, weight in target.items()
    }
    mixture.load_state_dict(copied)
    return mixture.train(dense.training)


def copy_problem(dense: LoriiniConfig, config: LoriiniConfig) -> str | None:
    """Why a model of `dense` cannot be copied into the experts of `config`; None if it can."""
    if dense.num_experts != 1:
        return f"the model to copy has {dense.num_experts} experts; it must be dense (1)"
    design = config.routing
    if not design.preserves_dense:
        return (
            "copies of its FFN need a router, no shared experts and gates that sum to 1; "
            f"selection={design.selection} with gates={design.gates} and scorer={design.scorer} trains from "
            "scratch"
        )
    if config.low_rank != dense.low_rank:
        return f"experts of low_rank={config.low_rank} are not copies of an FFN of low_rank={dense.low_rank}"
    return None


def change_design(mixture: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture's weights in another design, for further training.

    Routers are kept where `keeps_routers`, as from soft to top-k selection, else newly initialised.
    ValueError for another number of shared experts or another low rank.
    """
    theirs, ours = mixture.config.routing, config.routing
    if config.low_rank != mixture.config.low_rank:
        raise ValueError(f"low_rank is {config.low_rank}, but the mixture's is {mixture.config.low_rank}")
    if theirs.num_shared_experts != ours.num_shared_experts:
        raise ValueError(
            f"routing.num_shared_experts is {ours.num_shared_experts}, "
            f"but the mixture has {theirs.num_shared_experts}"
        )
    changed = LoriiniForCausalLM._from_config(config, dtype=mixture.dtype).to(mixture.device)
    kept, source = keeps_routers(theirs, ours), mixture.state_dict()
    weights = {
        name: source.get(name, weight) if kept else weight if ".mlp.router." in name else source[name]
        for name, weight in changed.state_dict().items()
    }
    changed.load_state_dict(weights)
    return changed.train(mixture.training)


def keeps_routers(old: RoutingConfig, new: RoutingConfig) -> bool:
    """Whether routers of one design are routers of the other: they score the same units in the same way."""
    axes = ("unit", "scope", "scorer", "scorer_width", "fixed")
    return all(getattr(old, axis) == getattr(new, axis) for axis in axes)
