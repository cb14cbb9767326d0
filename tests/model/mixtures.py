"""Tiny mixtures of transformers, with random weights."""

from typing import Any

import torch
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    PreTrainedModel,
)

from tiny import VOCABULARY

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}


def tiny_mixtral(**changes: Any) -> MixtralForCausalLM:
    return MixtralForCausalLM(MixtralConfig(**{**SIZES, "num_local_experts": 5, **changes})).eval()


def tiny_olmoe(**changes: Any) -> OlmoeForCausalLM:
    config = OlmoeConfig(**{**SIZES, "num_experts": 5, "num_experts_per_tok": 3, **changes})
    return with_random_vectors(OlmoeForCausalLM(config).eval())


def tiny_phimoe(**changes: Any) -> PhimoeForCausalLM:
    """A Phi-3.5-MoE with every bias, and with a jitter so large that gates are often not 1."""
    biases = {"attention_bias": True, "lm_head_bias": True}
    routing = {"num_local_experts": 5, "router_jitter_noise": 0.3, "input_jitter_noise": 0.01}
    config = PhimoeConfig(**{**SIZES, **biases, **routing, **changes})
    return with_random_vectors(PhimoeForCausalLM(config).eval())


def with_random_vectors(model: PreTrainedModel) -> PreTrainedModel:
    """The model with random norms and biases instead of ones and zeros."""
    for name, weight in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm.weight" in name), std=0.3)
    return model


TINY = [tiny_mixtral, tiny_olmoe, tiny_phimoe]
