"""Pretrained mixtures of transformers as rows of the space, with their routers or without."""

from dataclasses import replace
from typing import Any

from transformers import MixtralForCausalLM, OlmoeForCausalLM

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import DESIGNS, Router

PRETRAINED = {"mixtral": MixtralForCausalLM, "olmoe": OlmoeForCausalLM}
"""What `from_pretrained_mixture` takes, by its `model_type`."""

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

USUAL = {
    "hidden_act": "silu",
    "sliding_window": None,
    "router_jitter_noise": 0.0,
    "attention_bias": False,
    "clip_qkv": None,
}
"""The settings that a mixture must have, where it has them, for its block to be ours."""


def from_pretrained_mixture(mixture: MixtralForCausalLM | OlmoeForCausalLM) -> LoriiniForCausalLM:
    """A transformers Mixtral or OLMoE as a row of the space, with the same weights and logits.

    Its load-balancing loss keeps its weight, and is ours: per layer, where transformers pools all layers.
    ValueError for what our block has not: the settings that are not `USUAL`.
    """
    theirs = mixture.config
    for name, usual in USUAL.items():
        if getattr(theirs, name, usual) != usual:
            raise ValueError(f"{name} is {getattr(theirs, name)}; only mixtures with {usual} can be loaded")
    config = LoriiniConfig(
        **{name: getattr(theirs, name) for name in SHARED},
        block="olmoe" if theirs.model_type == "olmoe" else "llama",
        head_dim=getattr(theirs, "head_dim", None),
        num_experts=theirs.num_local_experts,
        routing=replace(
            DESIGNS["mixtral"],
            top_k=theirs.num_experts_per_tok,
            gates="softmax_selected" if getattr(theirs, "norm_topk_prob", True) else "softmax_all",
            load_balance=theirs.router_aux_loss_coef,
        ),
    )
    model = LoriiniForCausalLM._from_config(config, dtype=mixture.dtype).to(mixture.device)
    weights = model.state_dict()
    for name, weight in mixture.state_dict().items():
        ours = name.replace(".mlp.gate.", ".mlp.router.scorer.")
        weights[ours] = weight.view_as(weights[ours])  # theirs stack gate and up, ours keep them apart
    model.load_state_dict(weights)
    return model.train(mixture.training)


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
