"""transformers' models as Loriini's: a dense model has one expert, a mixture becomes a routing design."""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MistralForCausalLM,
    MixtralForCausalLM,
    OlmoeForCausalLM,
    PhimoeForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    Qwen3MoeForCausalLM,
    StableLmForCausalLM,
)

from loriini.model.block import BLOCKS
from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM
from loriini.routing import DESIGNS, RoutingConfig

SHARED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "max_position_embeddings", "initializer_range", "rms_norm_eps"),
    *("layer_norm_epsilon", "rope_parameters", "attention_bias", "attention_dropout", "lm_head_bias"),
    *("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id"),
)
"""Settings with the same meaning in all configurations that have them."""

GPT2_NAMES = {
    "transformer": "model",
    "wte": "embed_tokens",
    "wpe": "positions",
    "h": "layers",
    "ln_1": "input_layernorm",
    "attn": "self_attn",
    "ln_2": "post_attention_layernorm",
    "ln_f": "norm",
}
"""GPT-2's names of modules → our names."""
GPT2_FFN = {
    "c_fc.weight": "up_proj",
    "c_fc.bias": "up_bias",
    "c_proj.weight": "down_proj",
    "c_proj.bias": "down_bias",
}


def llama_weights(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A tensor of a Llama-like model, dense or a mixture, as our tensors by name."""
    name = re.sub(r"\.mlp\.(gate|router)\.weight$", ".mlp.router.scorer.weight", name)
    dense = re.sub(r"\.mlp\.(gate_proj|up_proj|down_proj)\.weight$", r".mlp.experts.\1", name)
    if dense != name:
        return {dense: weight[None]}
    stem, joined, _ = name.rpartition("gate_up_proj")
    if joined:  # (E, 2 F, D), gate first; the parts share no memory
        gate, up = weight.chunk(2, dim=1)
        return {f"{stem}gate_proj": gate.contiguous(), f"{stem}up_proj": up.contiguous()}
    return {name: weight}


def gpt2_weights(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A tensor of a GPT-2 as ours, by name; GPT-2 stores an FFN's matrices transposed."""
    stem, _, last = name.partition(".mlp.")
    ours = ".".join(GPT2_NAMES.get(part, part) for part in stem.split("."))
    if not last:
        return {ours: weight}
    return {f"{ours}.mlp.experts.{GPT2_FFN[last]}": (weight.mT if weight.dim() == 2 else weight)[None]}


def gpt2_settings(theirs: PretrainedConfig) -> dict[str, Any]:
    """GPT-2's block, FFN width and dropout; all dropouts take the rate of its residual branches."""
    width = theirs.n_inner or 4 * theirs.n_embd
    return {"block": "gpt2", "intermediate_size": width, "dropout": float(theirs.resid_pdrop)}


@dataclass(frozen=True)
class Family:
    """A class of models in transformers, and how it is converted.

    `settings`: ours besides SHARED. `required`: settings that our block lacks, with the only value it allows.
    """

    model: type[PreTrainedModel]
    settings: Callable[[PretrainedConfig], dict[str, Any]] = lambda theirs: {}
    required: Mapping[str, Any] = field(default_factory=dict)
    weights: Callable[[str, Tensor], dict[str, Tensor]] = llama_weights


SILU = {"hidden_act": "silu"}
FAMILIES = {
    "llama": Family(LlamaForCausalLM, required={**SILU, "mlp_bias": False}),
    "mistral": Family(MistralForCausalLM, required=SILU),
    "qwen2": Family(
        Qwen2ForCausalLM, lambda theirs: {"attention_bias": True, "attention_out_bias": False}, SILU
    ),
    "qwen3": Family(Qwen3ForCausalLM, lambda theirs: {"qk_norm": "head"}, SILU),
    "gpt2": Family(
        GPT2LMHeadModel,
        gpt2_settings,
        {
            "activation_function": "gelu_new",
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "reorder_and_upcast_attn": False,
            "add_cross_attention": False,
        },
        gpt2_weights,
    ),
    "mixtral": Family(MixtralForCausalLM, required={**SILU, "router_jitter_noise": 0.0}),
    "olmoe": Family(OlmoeForCausalLM, lambda theirs: {"qk_norm": "all"}, {**SILU, "clip_qkv": None}),
    "phimoe": Family(
        PhimoeForCausalLM, lambda theirs: {"block": "phimoe"}, {**SILU, "num_experts_per_tok": 2}
    ),
    "qwen3_moe": Family(
        Qwen3MoeForCausalLM,
        lambda theirs: {"qk_norm": "head", "intermediate_size": theirs.moe_intermediate_size},
        {**SILU, "mlp_only_layers": [], "decoder_sparse_step": 1},
    ),
    "stablelm": Family(
        StableLmForCausalLM,
        lambda theirs: {
            "block": "phimoe",
            "rms_norm_eps": theirs.layer_norm_eps,
            "attention_bias": theirs.use_qkv_bias,
            "attention_out_bias": False,
        },
        {**SILU, "use_parallel_residual": False, "qk_layernorm": False, "hidden_dropout": 0.0},
    ),
}
"""The models that `from_transformers` converts, by `model_type`."""


def from_transformers(theirs: PreTrainedModel) -> LoriiniForCausalLM:
    """A Loriini model with the logits of a model of one of FAMILIES.

    Both share weights, except gate and up projections that `theirs` stores as one tensor. A mixture's
    load-balancing loss keeps its weight but is computed per layer, where transformers pools all layers.
    Phi-3.5-MoE is routed as in evaluation, without the noise and gradient estimate of its training.
    ValueError for settings that our block does not have.
    """
    config = config_from_transformers(theirs.config)
    with torch.device("meta"):
        model = LoriiniForCausalLM._from_config(config, dtype=theirs.dtype)
    family = FAMILIES[theirs.config.model_type]
    weights: dict[str, Tensor] = {}
    for name, weight in theirs.state_dict().items():
        weights.update(family.weights(name, weight))
    model.load_state_dict(weights, assign=True)
    if config.block != "gpt2":  # rotary frequencies are computed, not loaded
        with theirs.device:
            model.model.positions = BLOCKS[config.block].positions(config)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.train(theirs.training)


def config_from_transformers(theirs: PretrainedConfig) -> LoriiniConfig:
    """Our configuration of one of FAMILIES; ValueError for settings that our block does not have.

    Attention over a sliding window is refused unless the model's longest context fits in it.
    """
    family = FAMILIES[theirs.model_type]
    for name, required in family.required.items():
        if (found := getattr(theirs, name)) != required:
            raise ValueError(f"{name} is {found!r}; only models with {required!r} can be loaded")
    window = getattr(theirs, "sliding_window", None)
    slides = "sliding_attention" in getattr(theirs, "layer_types", ["sliding_attention"])
    if slides and window is not None and window < theirs.max_position_embeddings:
        raise ValueError(f"sliding_window is {window}, which our attention does not have; give another model")
    values = {name: getattr(theirs, name) for name in SHARED if hasattr(theirs, name)}
    return LoriiniConfig(
        **{**deepcopy(values), **family.settings(theirs)},
        num_experts=getattr(theirs, "num_local_experts", 1),
        routing=_design(theirs),
    )


def _design(theirs: PretrainedConfig) -> RoutingConfig:
    """The routing design of a transformers configuration, mixture or dense."""
    if not hasattr(theirs, "num_local_experts"):
        return DESIGNS["dense"]
    design = replace(
        DESIGNS["mixtral"], top_k=theirs.num_experts_per_tok, load_balance=theirs.router_aux_loss_coef
    )
    if theirs.model_type == "phimoe":
        return replace(design, gates="sparse_mixer", jitter=theirs.router_jitter_noise)
    return design if getattr(theirs, "norm_topk_prob", True) else replace(design, gates="softmax_all")


def read_complete(kind: type[PreTrainedModel], folder: Path) -> PreTrainedModel:
    """A model from its folder's safetensors. ValueError if a tensor is missing or of the wrong shape.

    ValueError also for unexpected tensors in a Loriini model: its configuration would lack their part.
    """
    if not any(folder.glob("*.safetensors")):
        raise ValueError("it has no safetensors; load it in transformers, and save it with save_pretrained")
    try:
        model, found = kind.from_pretrained(
            folder, output_loading_info=True, ignore_mismatched_sizes=True, use_safetensors=True
        )
    except SafetensorError as error:
        raise ValueError(f"damaged safetensors: {error}") from error
    if found["mismatched_keys"]:
        name, stored, expected = min(found["mismatched_keys"])
        raise ValueError(f"{name} has shape {tuple(stored)} instead of {tuple(expected)}")
    if found["missing_keys"]:
        missing = sorted(found["missing_keys"])
        raise ValueError(f"it lacks {len(missing)} tensors, such as {missing[0]}")
    if kind is LoriiniForCausalLM and found["unexpected_keys"]:
        raise ValueError(f"{min(found['unexpected_keys'])} belongs to nothing that its config.json names")
    return model
