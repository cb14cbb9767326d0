"""Conversion: a dense model copied into experts, from Llama and GPT-2, and to a merged Llama."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers import GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from loriini.model.configuration import LoriiniConfig
from loriini.model.modeling import LoriiniForCausalLM

GPT2_SETTINGS = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"""The settings of a GPT-2 that our block requires."""

GPT2_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "layer_norm_epsilon",
    "initializer_range",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
)
"""The fields of a configuration that GPT-2 and Loriini share."""

GPT2_NAMES = {
    "wte": "embed_tokens",
    "wpe": "positions",
    "h": "layers",
    "ln_1": "input_layernorm",
    "attn": "self_attn",
    "ln_2": "post_attention_layernorm",
    "ln_f": "norm",
}
"""GPT-2's modules by our names."""

LLAMA_FFN = ("gate_proj", "up_proj", "down_proj")
"""The weights of a Llama's FFN, which ours are named after."""


def copy_into_experts(dense: LoriiniForCausalLM, config: LoriiniConfig) -> LoriiniForCausalLM:
    """A mixture of `config` whose experts are copies of the dense model's FFN (Lory §3.1, warm-up).

    Everything else is copied too; routers are newly initialised. The mixture computes what the dense model
    does. ValueError for a design where it would not: with shared experts, or gates that do not sum to 1.
    """
    if dense.config.num_experts != 1:
        raise ValueError(f"the model to copy has {dense.config.num_experts} experts; it must be dense (1)")
    if not config.routing.preserves_dense:
        raise ValueError(
            "a dense warm-up needs no shared experts and gates that sum to 1; "
            f"selection={config.routing.selection} with gates={config.routing.gates} and "
            f"scorer={config.routing.scorer} trains from scratch"
        )
    mixture = LoriiniForCausalLM._from_config(config, dtype=dense.dtype).to(dense.device)
    source = dense.state_dict()
    target = mixture.state_dict()
    copied = {
        name: source[name].expand_as(weight) if name in source else weight for name, weight in target.items()
    }
    mixture.load_state_dict(copied)
    return mixture.train(dense.training)


def from_llama(llama: LlamaForCausalLM) -> LoriiniForCausalLM:
    """A transformers Llama as a dense Loriini (one expert), with the same weights and logits."""
    config = LoriiniConfig(**_shared(llama.config.to_dict()), num_experts=1, routing="dense")
    weights = {k: v for k, v in llama.state_dict().items() if ".mlp." not in k}
    for i, layer in enumerate(llama.model.layers):
        mlp, prefix = layer.mlp, f"model.layers.{i}.mlp.experts"
        for name in LLAMA_FFN:
            weights[f"{prefix}.{name}"] = getattr(mlp, name).weight[None]
    return _dense(config, weights, llama)


def from_gpt2(gpt2: GPT2LMHeadModel) -> LoriiniForCausalLM:
    """A transformers GPT-2 as a dense Loriini (one expert, block gpt2), with the same weights and logits.

    All dropouts take the rate of its residual branches. ValueError for settings that our block does not have.
    """
    theirs = gpt2.config
    for name, required in GPT2_SETTINGS.items():
        if (value := getattr(theirs, name)) != required:
            raise ValueError(f"this GPT-2 has {name}={value!r}; only {required!r} is supported")
    config = LoriiniConfig(
        **{name: getattr(theirs, name) for name in GPT2_FIELDS},
        block="gpt2",
        intermediate_size=theirs.n_inner or 4 * theirs.n_embd,
        dropout=theirs.resid_pdrop,
        num_experts=1,
        routing="dense",
    )
    weights = {"lm_head.weight": gpt2.lm_head.weight}
    for name, weight in gpt2.transformer.state_dict().items():
        if ".mlp." not in name:
            weights[".".join(["model", *(GPT2_NAMES.get(part, part) for part in name.split("."))])] = weight
    for i, layer in enumerate(gpt2.transformer.h):
        up, down = layer.mlp.c_fc, layer.mlp.c_proj  # transformers stores their weights transposed
        ffn = {"up_proj": up.weight.T, "up_bias": up.bias, "down_proj": down.weight.T, "down_bias": down.bias}
        weights.update({f"model.layers.{i}.mlp.experts.{name}": w[None] for name, w in ffn.items()})
    return _dense(config, weights, gpt2)


def _dense(
    config: LoriiniConfig, weights: Mapping[str, Tensor], source: PreTrainedModel
) -> LoriiniForCausalLM:
    """A model of `weights`, with the dtype, device and training mode of their source."""
    dense = LoriiniForCausalLM._from_config(config, dtype=source.dtype).to(source.device)
    dense.load_state_dict({**dense.state_dict(), **weights})
    return dense.train(source.training)


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
    config = LlamaConfig(**_shared(model.config.to_dict()))
    llama = LlamaForCausalLM._from_config(config, dtype=model.dtype).to(model.device)
    weights = {k: v for k, v in model.state_dict().items() if ".mlp." not in k and not k.endswith("draws")}
    for i, (mixture, gates_E) in enumerate(zip(model.model.mixtures, gates, strict=True)):
        merged = mixture.experts.merge(gates_E[None].to(model.device))
        weights.update({f"model.layers.{i}.mlp.{name}.weight": merged[name][0] for name in LLAMA_FFN})
    llama.load_state_dict(weights)
    return llama.eval()


def _shared(values: Mapping[str, object]) -> dict[str, object]:
    """The fields of a configuration that Llama and Loriini share."""
    names = set(LlamaConfig().to_dict()) - {"model_type", "architectures", "transformers_version", "dtype"}
    return {k: v for k, v in values.items() if k in names}
