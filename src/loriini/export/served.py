"""Sparse designs as mixtures of transformers that vLLM, SGLang and llama.cpp serve.

The reverse of `model.pretrained`. A design qualifies by what it computes in evaluation, not by its name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import (
    MixtralForCausalLM,
    OlmoeForCausalLM,
    PhimoeForCausalLM,
    PreTrainedModel,
    Qwen2MoeForCausalLM,
    Qwen3MoeForCausalLM,
)

from loriini.common.checks import refuse_first
from loriini.common.errors import InputError
from loriini.export.weights import build, shared_settings, swiglu_weights, weights_outside_experts
from loriini.model import LoriiniConfig, LoriiniForCausalLM
from loriini.model.mixture import Mixture
from loriini.routing import RoutingConfig
from loriini.routing.scorer import RandomScorer, standard_normal
from loriini.routing.selection import fixed_counts


@dataclass(frozen=True)
class Served:
    """A mixture of transformers."""

    model: type[PreTrainedModel]
    title: str
    gates: Mapping[str, Mapping[str, Any]]
    """The gates it can have, by our names, and its settings for each."""
    router: str = "gate"
    """The name of its routers."""
    experts: str = "num_experts"
    """The name of its setting of the number of experts."""
    width: str = "intermediate_size"
    """The name of its setting of the experts' width."""
    shares_experts: bool = False
    of_all: str = "softmax_selected"
    """The gates it is given where all experts are selected, for which two of them are the same: those that
    other programs have."""


BY_NORMALIZING: Mapping[str, Mapping[str, Any]] = {
    "softmax_all": {"norm_topk_prob": False},
    "softmax_selected": {"norm_topk_prob": True},
}

SERVED = {
    "mixtral": Served(MixtralForCausalLM, "Mixtral", {"softmax_selected": {}}, experts="num_local_experts"),
    "olmoe": Served(OlmoeForCausalLM, "OLMoE", BY_NORMALIZING, of_all="softmax_all"),
    "phimoe": Served(
        PhimoeForCausalLM, "Phi-3.5-MoE", {"sparse_mixer": {}}, router="router", experts="num_local_experts"
    ),
    "qwen2_moe": Served(
        Qwen2MoeForCausalLM,
        "Qwen2-MoE",
        BY_NORMALIZING,
        width="moe_intermediate_size",
        shares_experts=True,
        of_all="softmax_all",
    ),
    "qwen3_moe": Served(Qwen3MoeForCausalLM, "Qwen3-MoE", BY_NORMALIZING, width="moe_intermediate_size"),
}


TINY = 1e-7
"""A small number that is not 0 in float16."""


@torch.no_grad()
def to_served(model: LoriiniForCausalLM, name: str) -> PreTrainedModel:
    """The model as the architecture `name` of SERVED, with the same logits.

    Weights other than the experts' gate and up are shared, not copied. InputError with the reason for a
    model that computes another function.
    """
    kind, config = SERVED[name], model.config
    k, gates = top_k_of_tokens(config)
    if k == config.num_experts and gates == "softmax_selected":
        gates = kind.of_all
    if gates not in kind.gates:
        raise InputError(f"its gates are {gates}, and {kind.title} has {' or '.join(kind.gates)}")
    if config.num_shared_experts and not kind.shares_experts:
        raise InputError(f"it has shared experts, and {kind.title} has none")
    if name == "phimoe" and k != 2:
        raise InputError(f"its top k is {k}, and {kind.title}'s is 2")
    settings = {
        **shared_settings(kind.model, config),
        **kind.gates[gates],
        kind.experts: config.num_experts,
        kind.width: config.expert_width,
        "num_experts_per_tok": k,
        "router_aux_loss_coef": config.routing.load_balance,
    }
    weights = weights_outside_experts(model)
    for layer, mixture in enumerate(model.model.mixtures):
        prefix = f"model.layers.{layer}.mlp"
        experts = swiglu_weights(mixture.experts.stacked())
        weights[f"{prefix}.{kind.router}.weight"] = router_weight(mixture)
        weights[f"{prefix}.experts.gate_up_proj"] = torch.cat([experts["gate_proj"], experts["up_proj"]], 1)
        weights[f"{prefix}.experts.down_proj"] = experts["down_proj"]
        if kind.shares_experts:
            shared = shared_expert(mixture)
            settings["shared_expert_intermediate_size"] = len(shared["shared_expert.up_proj.weight"])
            weights.update({f"{prefix}.{part}": weight for part, weight in shared.items()})
    if name == "qwen2_moe":
        settings["qkv_bias"] = True
        add_zero_biases(weights, "q_proj", "k_proj", "v_proj")
    if name == "phimoe":
        settings |= {"router_jitter_noise": config.routing.jitter, "lm_head_bias": True}
        add_zero_biases(weights, "lm_head")
    return build(kind.model, settings, weights, model.device)


def add_zero_biases(weights: dict[str, Tensor], *names: str) -> None:
    """Give the matrices of these names biases of 0 where they have none: vLLM's classes always have them."""
    for name, weight in list(weights.items()):
        matrix = name.removesuffix(".weight")
        if matrix.split(".")[-1] in names and matrix != name:
            weights.setdefault(f"{matrix}.bias", weight.new_zeros(len(weight)))


def top_k_of_tokens(config: LoriiniConfig) -> tuple[int, str]:
    """k and the gates of a model that routes every token to its top k by a linear router, in evaluation.

    Gates that are the same for this k are named alike. InputError with the reason for any other model.
    """
    refuse_first(_not_top_k_of_tokens(config))
    r = config.routing
    k = fixed_counts(r, 1, config.num_experts, training=False, padded=False).per_unit
    assert k is not None
    return k, equal_gates(r, k, config.num_experts)


def _not_top_k_of_tokens(config: LoriiniConfig) -> Iterator[str]:
    """Why a model does not route every token to its top k by a linear router, in evaluation."""
    r = config.routing
    if not config.is_mixture:
        yield "it is dense"
    if config.block == "gpt2":
        yield "block=gpt2 has no gated experts and no rotary positions"
    if r.unit != "token":
        yield f"it routes by {r.unit}, not by token"
    if r.scope == "global" and not r.constant_gates:
        yield "its first layer decides for all (scope=global)"
    if r.scorer not in ("linear", "frozen", "random") and not r.constant_gates:
        yield f"its router is not linear (scorer={r.scorer})"
    if r.experts_vary:
        yield f"the number of experts varies (selection={r.selection})"
    if r.balance_bias != 0:
        yield "its selection has a bias (balance_bias)"


def equal_gates(routing: RoutingConfig, k: int, num_experts: int) -> str:
    """The gates of a design, `softmax_selected` where they are the same function."""
    only_one = k == 1 and routing.gates in ("softmax_twice", "sigmoid", "uniform")
    everyone = k == num_experts and routing.gates == "softmax_all"
    return "softmax_selected" if routing.constant_gates or only_one or everyone else routing.gates


def router_weight(mixture: Mixture) -> Tensor:
    """The linear router (E, D) of a layer: a random one's as drawn in evaluation, zeros for fixed gates."""
    config = mixture.config
    scorer = None if mixture.router is None else mixture.router.scorer
    like = cast(Tensor, mixture.experts.down_proj)
    if scorer is None:
        return like.new_zeros(config.num_experts, config.hidden_size)
    if isinstance(scorer, RandomScorer):
        draw = torch.zeros((), dtype=torch.long, device=like.device)
        normal = standard_normal(draw, scorer.layer, config.num_experts, config.hidden_size)
        return (scorer.settings.std * normal).to(like.dtype)
    return cast(Tensor, scorer.weight).detach()


def shared_expert(mixture: Mixture) -> dict[str, Tensor]:
    """Qwen2-MoE's shared expert, by its names; zeros, 8 wide, for a model without.

    Its output is multiplied by the sigmoid of a gate, which is 1/2 where the gate's weights are tiny, so the
    output projection is doubled. They are not zero because llama.cpp divides by the gate.
    """
    like = cast(Tensor, mixture.experts.down_proj)
    hidden_size = mixture.config.hidden_size
    if mixture.shared is None:
        up, down = like.new_zeros(8, hidden_size), like.new_zeros(hidden_size, 8)
        ffn = {"gate_proj": up, "up_proj": up.clone(), "down_proj": down}
    else:
        ffn = {name: w[0] for name, w in swiglu_weights(mixture.shared.stacked()).items()}
        ffn["down_proj"] = 2 * ffn["down_proj"]
    weights = {f"shared_expert.{name}.weight": weight for name, weight in ffn.items()}
    return {**weights, "shared_expert_gate.weight": like.new_full((1, hidden_size), TINY)}
