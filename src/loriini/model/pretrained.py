"""Pretrained mixtures of transformers as routing designs, with their routers or without."""

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

from loriini.model.block import BLOCKS
from loriini.model.configuration import LoriiniConfig
from loriini.model.gate_up import GATE_UP, split_gate_up
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
"""The settings with the same meaning in all configurations."""

OPTIONAL = ("head_dim", "attention_bias", "lm_head_bias")
"""Settings that only some configurations have."""


@dataclass(frozen=True)
class Pretrained:
    """A kind of pretrained mixture: its class, our block, and the settings that this block requires."""

    model: type[PreTrainedModel]
    block: str
    required: Mapping[str, Any] = field(default_factory=dict)


PRETRAINED = {
    "mixtral": Pretrained(MixtralForCausalLM, "llama", {"router_jitter_noise": 0.0}),
    "olmoe": Pretrained(OlmoeForCausalLM, "olmoe", {"clip_qkv": None}),
    "phimoe": Pretrained(PhimoeForCausalLM, "phimoe", {"num_experts_per_tok": 2}),
}
"""The kinds that `from_pretrained_mixture` converts, by `model_type`."""


def from_pretrained_mixture(mixture: PreTrainedModel) -> LoriiniForCausalLM:
    """A transformers Mixtral, OLMoE or Phi-3.5-MoE as a Loriini model with the same weights and logits.

    All weights but gate and up projections are shared with `mixture`, not copied. Its load-balancing loss
    keeps its weight but is computed per layer, where transformers pools all layers. Phi-3.5-MoE is routed as
    in evaluation, without the noise and gradient estimate of its training. ValueError for settings that our
    block does not have.
    """
    config = mixture_config(mixture.config)
    with torch.device("meta"):
        model = LoriiniForCausalLM._from_config(config, dtype=mixture.dtype)
    with mixture.device:
        model.model.positions = BLOCKS[config.block].positions(config)  # its buffers are computed, not loaded
        weights = {"model.draws": torch.zeros((), dtype=torch.long)}
    for name, weight in mixture.state_dict().items():
        ours = re.sub(r"\.mlp\.(gate|router)\.weight", ".mlp.router.scorer.weight", name)
        if ours.endswith(GATE_UP):  # theirs (E, 2 F, D)
            weights.update(split_gate_up(ours, weight.unflatten(1, (2, -1))))
        else:
            weights[ours] = weight
    model.load_state_dict(weights, assign=True)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.train(mixture.training)


def mixture_config(theirs: PretrainedConfig) -> LoriiniConfig:
    """Our configuration of a pretrained mixture; ValueError for settings that our block does not have."""
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
    """ValueError for settings that our block does not have; a window as long as the context is none."""
    found = {"sliding_window": None, **theirs.to_dict()}
    if (found["sliding_window"] or 0) >= theirs.max_position_embeddings:
        found["sliding_window"] = None
    for name, required in {"hidden_act": "silu", "sliding_window": None, **kind.required}.items():
        if found[name] != required:
            raise ValueError(f"{name} is {found[name]}; only mixtures with {required} can be loaded")


def _design(theirs: PretrainedConfig) -> RoutingConfig:
    """The routing design of a pretrained mixture."""
    design = replace(
        DESIGNS["mixtral"], top_k=theirs.num_experts_per_tok, load_balance=theirs.router_aux_loss_coef
    )
    if theirs.model_type == "phimoe":
        return replace(design, gates="sparse_mixer", jitter=theirs.router_jitter_noise)
    return design if getattr(theirs, "norm_topk_prob", True) else replace(design, gates="softmax_all")


def router_free(
    model: LoriiniForCausalLM, node: Any, norm: Any = 2, gates: Any = "softmax_selected"
) -> LoriiniForCausalLM:
    """Remove the routers of a token-level mixture, in place, and rank experts by their activations.

    Every expert computes up to `node`; a token gets the k experts of highest L1, L2 or L∞ `norm` there, and
    only these compute the rest (AoE §3.1, appendix A). Gates are the softmax over the chosen norms or
    `uniform`, which the paper does not say. ValueError for a node or design that does not admit this.
    """
    if node == "low_rank":
        raise ValueError("node=low_rank is a node of factorised experts, which are trained without a router")
    design = replace(model.config.routing, scorer="activation_norm", node=node, norm=norm, gates=gates)
    LoriiniConfig(**{**model.config.to_dict(), "routing": design})  # raises where they do not go together
    model.config.routing = design
    for layer, mixture in enumerate(model.model.mixtures):
        mixture.router = Router(model.config.router_settings(layer)).train(model.training)
    return model
