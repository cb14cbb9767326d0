"""Tiny models of every family of transformers that ours reads, with random weights, norms and biases."""

from functools import partial
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

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
OWN: dict[str, dict[str, Any]] = {
    "llama": SPECIAL,
    "mistral": {**SPECIAL, "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gpt2": {**SPECIAL, "n_embd": 16, "n_inner": 24, "n_layer": 2, "n_head": 4, "n_positions": 32},
    "mixtral": {"num_local_experts": 5},
    "olmoe": {"num_experts": 5, "num_experts_per_tok": 3},
    "phimoe": {
        **{"num_local_experts": 5, "attention_bias": True, "lm_head_bias": True},
        **{"router_jitter_noise": 0.3, "input_jitter_noise": 0.01},  # so large that gates are often not 1
    },
    "qwen3_moe": {"head_dim": 8, "moe_intermediate_size": 12, "num_experts": 5, "num_experts_per_tok": 2},
    "stablelm": {"partial_rotary_factor": 0.5},
}
"""What each family's configuration has besides SIZES."""
GPT2_HAS = ("vocab_size", "initializer_range")


def tiny_of(family: str, **changes: Any) -> PreTrainedModel:
    sizes = {k: v for k, v in SIZES.items() if family != "gpt2" or k in GPT2_HAS}
    config = AutoConfig.for_model(family, **{**sizes, **OWN[family], **changes})
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm.weight" in name), std=0.3)
    return model


TINY_FAMILIES = {family: partial(tiny_of, family) for family in OWN}
MIXTURES = ["mixtral", "olmoe", "phimoe"]
