"""Conversion: a dense model copied into experts, a mixture in another design, and a merged Llama."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import RoutingConfig

LLAMA_FFN = ("gate_proj", "up_proj", "down_proj")
"""The weights of a Llama's FFN, which ours are named after."""


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
            "copies of its FFN need no shared experts and gates that sum to 1; "
            f"selection={design.selection} with gates={design.gates} and scorer={design.scorer} trains from "
            "scratch"
        )
    if config.low_rank != dense.low_rank:
        return f"experts of low_rank={config.low_rank} are not copies of an FFN of low_rank={dense.low_rank}"
    return None


def change_design(mixture: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture's weights in another design, for further training.

    Routers are kept where `keeps_routers`, as from soft to top-k selection, else newly initialised.
    ValueError for another number of shared experts.
    """
    theirs, ours = mixture.config.routing, config.routing
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


def to_llama(model: LoriiniForCausalLM, gates: Sequence[Tensor]) -> LlamaForCausalLM:
    """A plain Llama whose FFNs are the experts merged by `gates`, one (E,) per layer (Lory §3.1, inference).

    With the gates of a prompt it computes what prompt-routed generation does after that prompt. ValueError
    for models whose experts do not merge into a Llama's FFN.
    """
    if model.config.routing.combination != "parameters" and model.config.num_experts > 1:
        raise ValueError("only designs with combination=parameters merge into one Llama")
    if model.config.block != "llama" or model.config.low_rank is not None:
        raise ValueError("only experts of block=llama without low_rank are a Llama's FFNs")
    if model.config.lm_head_bias:
        raise ValueError("a Llama's output head has no bias")
    if model.config.num_shared_experts:
        raise ValueError("shared experts are not merged into a Llama")
    if model.config.qk_norm is not None:
        raise ValueError(
            f"a Llama has no norms of queries and keys, and this model has qk_norm={model.config.qk_norm}"
        )
    if model.config.attention_out_bias != model.config.attention_bias:
        raise ValueError("a Llama's attention has a bias of its output where it has others, and this has not")
    config = LlamaConfig(**_shared(model.config.to_dict()))
    llama = LlamaForCausalLM._from_config(config, dtype=model.dtype).to(model.device)
    weights = {k: v for k, v in model.state_dict().items() if ".mlp." not in k and not k.endswith("draws")}
    for i, (mixture, gates_E) in enumerate(zip(model.model.mixtures, gates, strict=True)):
        merged = mixture.experts("merge", gates_E[None].to(model.device))
        weights.update({f"model.layers.{i}.mlp.{name}.weight": merged[name][0] for name in LLAMA_FFN})
    llama.load_state_dict(weights)
    return llama.eval()


def _shared(values: Mapping[str, object]) -> dict[str, object]:
    """The fields of a configuration that Llama and Loriini share."""
    names = set(LlamaConfig().to_dict()) - {"model_type", "architectures", "transformers_version", "dtype"}
    return {k: v for k, v in values.items() if k in names}
