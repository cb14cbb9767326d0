"""Tiny models of every family of transformers that ours reads, with random weights, norms and biases."""

from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
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
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1}
GPT2_SIZES = {"n_embd": 16, "n_inner": 24, "n_layer": 2, "n_head": 4, "n_positions": 32}
QWEN3_MOE = {"head_dim": 8, "moe_intermediate_size": 12, "num_experts": 5, "num_experts_per_tok": 2}


def tiny_llama(**changes: Any) -> PreTrainedModel:
    return with_random_vectors(LlamaForCausalLM(LlamaConfig(**{**SIZES, **SPECIAL, **changes})).eval())


def tiny_mistral(**changes: Any) -> PreTrainedModel:
    config = MistralConfig(**{**SIZES, **SPECIAL, "sliding_window": None, **changes})
    return with_random_vectors(MistralForCausalLM(config).eval())


def tiny_qwen2(**changes: Any) -> PreTrainedModel:
    return with_random_vectors(Qwen2ForCausalLM(Qwen2Config(**{**SIZES, **changes})).eval())


def tiny_qwen3(**changes: Any) -> PreTrainedModel:
    return with_random_vectors(Qwen3ForCausalLM(Qwen3Config(**{**SIZES, "head_dim": 8, **changes})).eval())


def tiny_qwen3_moe(**changes: Any) -> PreTrainedModel:
    config = Qwen3MoeConfig(**{**SIZES, **QWEN3_MOE, **changes})
    return with_random_vectors(Qwen3MoeForCausalLM(config).eval())


def tiny_gpt2(**changes: Any) -> PreTrainedModel:
    config = GPT2Config(
        **{"vocab_size": SIZES["vocab_size"], "initializer_range": 0.3, **GPT2_SIZES, **SPECIAL, **changes}
    )
    return with_random_vectors(GPT2LMHeadModel(config).eval())


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


def tiny_stablelm(**changes: Any) -> PreTrainedModel:
    """Heads of 4, of which 2 dimensions are rotated."""
    return with_random_vectors(
        StableLmForCausalLM(StableLmConfig(**{**SIZES, "partial_rotary_factor": 0.5, **changes})).eval()
    )


def with_random_vectors(model: PreTrainedModel) -> PreTrainedModel:
    """The model with random norms and biases instead of ones and zeros."""
    for name, weight in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm.weight" in name), std=0.3)
    return model


TINY_FAMILIES = {
    "llama": tiny_llama,
    "mistral": tiny_mistral,
    "qwen2": tiny_qwen2,
    "qwen3": tiny_qwen3,
    "gpt2": tiny_gpt2,
    "mixtral": tiny_mixtral,
    "olmoe": tiny_olmoe,
    "phimoe": tiny_phimoe,
    "qwen3_moe": tiny_qwen3_moe,
    "stablelm": tiny_stablelm,
}
MIXTURES = [tiny_mixtral, tiny_olmoe, tiny_phimoe]
