"""Pretrained mixtures of transformers as rows of the space, with their routers or without."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import (
    MixtralForCausalLM,
    OlmoeForCausalLM,
    PhimoeForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import DESIGNS, Router, RoutingConfig

SHARED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "rope_parameters",
    "attention_dropout",
    "tie_word_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)
"""The settings that mean the same in all configurations."""

OPTIONAL = ("head_dim", "attention_bias", "lm_head_bias")
"""Those that some configurations have."""


@dataclass(frozen=True)
class Pretrained:
    """A kind of pretrained mixture: its class, our block, and the settings it must have for that block."""

    model: type[PreTrainedModel]
    block: str
    usual: Mapping[str, Any] = field(default_factory=dict)


PRETRAINED = {
    "mixtral": Pretrained(MixtralForCausalLM, "llama", {"router_jitter_noise": 0.0}),
    "olmoe": Pretrained(OlmoeForCausalLM, "olmoe", {"clip_qkv": None}),
    "phimoe": Pretrained(PhimoeForCausalLM, "phimoe", {"num_experts_per_tok": 2}),
}
"""What `from_pretrained_mixture` takes, by its `model_type`."""


def from_pretrained_mixture(mixture: PreTrainedModel) -> LoriiniForCausalLM:
    """A transformers Mixtral, OLMoE or Phi-3.5-MoE as a row of the space, with the same logits.

    The two models share their weights: nothing is copied. The load-balancing loss keeps its weight, and is
    ours: per layer, where transformers pools all layers. Phi-3.5-MoE's routing is that of its evaluation;
    the noise and the estimate of the router's gradient that it trains with are not supported. ValueError
    for settings that our block does not have.
    """
    config = mixture_config(mixture.config)
    with torch.device("meta"):
        weights = LoriiniForCausalLM(config).state_dict()
    for name, weight in mixture.state_dict().items():
        ours = re.sub(r"\.mlp\.(gate|router)\.weight", ".mlp.router.scorer.weight", name)
        weights[ours] = weight.view(weights[ours].shape)  # theirs stack gate and up, ours keep them apart
    weights["model.draws"] = torch.zeros((), dtype=torch.long)
    model = LoriiniForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=mixture.dtype)
    return model.to(mixture.device).train(mixture.training)


def mixture_config(theirs: PretrainedConfig) -> LoriiniConfig:
    """The configuration of the row that a pretrained mixture is."""
    kind = PRETRAINED[theirs.model_type]
    _check(theirs, kind)
    given = [*SHARED, *(name for name in OPTIONAL if hasattr(theirs, name))]
    return LoriiniConfig(
        **{name: getattr(theirs, name) for name in given},
        block=kind.block,
        num_experts=theirs.num_local_experts,
        routing=_design(theirs),
    )


def _check(theirs: PretrainedConfig, kind: Pretrained) -> None:
    """ValueError for settings that our block has not; a window as long as the context is none."""
    found = {"sliding_window": None, **theirs.to_dict()}
    if (found["sliding_window"] or 0) >= theirs.max_position_embeddings:
        found["sliding_window"] = None
    for name, usual in {"hidden_act": "silu", "sliding_window": None, **kind.usual}.items():
        if found[name] != usual:
            raise ValueError(f"{name} is {found[name]}; only mixtures with {usual} can be loaded")


def _design(theirs: PretrainedConfig) -> RoutingConfig:
    """How a pretrained mixture routes."""
    design = replace(
        DESIGNS["mixtral"], top_k=theirs.num_experts_per_tok, load_balance=theirs.router_aux_loss_coef
    )
    if theirs.model_type == "phimoe":
        return replace(design, gates="sparse_mixer", jitter=theirs.router_jitter_noise)
    return design if getattr(theirs, "norm_topk_prob", True) else replace(design, gates="softmax_all")


def router_free(
    model: LoriiniForCausalLM, node: Any, norm: Any = 2, gates: Any = "softmax_selected"
) -> LoriiniForCausalLM:
    """Drop the routers of a token-level mixture, in place, and let activations choose (AoE §3.1, appendix A).

    Every expert runs up to `node`; a token gets the k of highest L1, L2 or L∞ `norm` there, weighed by the
    softmax of these norms or by `uniform` gates, which the paper does not state. Experts are unchanged.
    ValueError for a node that these experts or a design that these choices do not admit.
    """
    if node == "low_rank":
        raise ValueError("node=low_rank is a node of factorised experts, which are trained without a router")
    design = replace(model.config.routing, scorer="activation_norm", node=node, norm=norm, gates=gates)
    for layer, mixture in enumerate(model.model.mixtures):
        router = Router(model.config.hidden_size, model.config.num_experts, design, layer)
        mixture.router = router.train(model.training)
    model.config.routing = design
    return model
