"""GGUF files, which llama.cpp and the programs around it load: weights, settings and tokenizer.

Written with the `gguf` package: llama.cpp's own converter refuses tokenizers that it has not seen.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from loriini.common.errors import InputError
from loriini.common.tokenizers import splits_as_gpt2

FILE = "model.gguf"


@dataclass(frozen=True)
class LlamaCppArchitecture:
    """An architecture of llama.cpp."""

    name: str
    interleaved: bool = False
    """Whether rotary positions pair neighbouring dimensions, not those half a head apart."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Settings of transformers, with the values that llama.cpp assumes."""
    ties: bool = True
    """Whether the embedding is the output head if a file has none."""


ARCHITECTURES = {
    "llama": LlamaCppArchitecture("llama", interleaved=True),
    "mixtral": LlamaCppArchitecture("llama", interleaved=True),
    "olmoe": LlamaCppArchitecture(
        "olmoe", required={"norm_topk_prob": False, "attention_bias": False}, ties=False
    ),
}
"""By transformers' `model_type`. Phi-3.5-MoE is left out: in a trial, llama.cpp continued differently."""

FLOAT32_ONLY = ("norm", "ffn_gate_inp", "bias")
"""Parts of the names of tensors that are float32 in every file."""


def check_gguf(tokenizer: PreTrainedTokenizerBase) -> None:
    """InputError if the tokenizer cannot be written to a GGUF file, or the `gguf` package is missing."""
    import_gguf()
    gguf_vocabulary(tokenizer, 0)


def import_gguf() -> Any:
    """The `gguf` package; InputError where it is missing."""
    try:
        import gguf
    except ModuleNotFoundError:
        raise InputError("--to gguf needs the gguf package: pip install 'loriini[gguf]'") from None
    return gguf


def write_gguf(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dtype: str, path: Path) -> None:
    """Write a model, one of those that `not_gguf` admits, and its tokenizer into one file.

    Matrices are in `dtype`, except routers, which are in float32 like vectors. InputError as from
    `check_gguf`.
    """
    gguf = import_gguf()
    config = model.config
    vocabulary = gguf_vocabulary(tokenizer, config.vocab_size)
    architecture = ARCHITECTURES[config.model_type]
    kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    writer = gguf.GGUFWriter(path, architecture.name)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if kind == "F32" else f"MOSTLY_{kind}"])
    _add_settings(writer, config)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    for role in ("bos", "eos", "pad"):
        if (token := getattr(tokenizer, f"{role}_token_id")) is not None:
            getattr(writer, f"add_{role}_token_id")(token)
    writer.add_add_bos_token(False)
    if (end := _end_of_turn(model, tokenizer)) is not None:
        writer.add_eot_token_id(end)
    templates = tokenizer.chat_template
    if isinstance(templates, dict):
        templates = [{"name": name, "template": text} for name, text in templates.items()]
    if templates:
        writer.add_chat_template(templates)
    for name, tensor in gguf_tensors(model, architecture):
        array = tensor.float().cpu().numpy()
        small = array.ndim == 1 or any(part in name for part in FLOAT32_ONLY)
        quantization = gguf.GGMLQuantizationType["F32" if small else kind]
        writer.add_tensor(name, gguf.quants.quantize(array, quantization), raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _end_of_turn(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The first token other than the tokenizer's EOS at which generation ends; None without one."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return next((token for token in ends if token != tokenizer.eos_token_id), None)


def not_gguf(config: PretrainedConfig) -> str | None:
    """Why llama.cpp cannot hold a model of this transformers configuration; None if it can."""
    if config.model_type not in ARCHITECTURES:
        return f"no {config.model_type} is written for llama.cpp, which computes it differently"
    architecture = ARCHITECTURES[config.model_type]
    for name, required in architecture.required.items():
        if (value := getattr(config, name)) != required:
            return f"llama.cpp has {config.model_type} with {name}={required} only, and this has {value}"
    if config.model_type == "olmoe" and config.num_key_value_heads != config.num_attention_heads:
        return "llama.cpp norms the keys of olmoe over all heads, so it needs as many key as query heads"
    written = ("default", "llama3") if architecture.name == "llama" else ("default",)
    if (kind := config.rope_parameters["rope_type"]) not in written:
        return f"rotary positions of type {kind} are not written"
    return None


def head_dim(config: PretrainedConfig) -> int:
    """The width of an attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _add_settings(writer: Any, config: PretrainedConfig) -> None:
    """The architecture's metadata."""
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim(config))
    writer.add_value_length(head_dim(config))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(head_dim(config))
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if hasattr(config, "num_experts"):
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)


def gguf_tensors(model: PreTrainedModel, architecture: LlamaCppArchitecture) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with its name in llama.cpp."""
    gguf, config = import_gguf(), model.config
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    if config.rope_parameters["rope_type"] == "llama3":
        yield "rope_freqs.weight", rotary_factors(model)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings and architecture.ties:
            continue
        if name.endswith(".gate_up_proj"):
            for part, half in zip(("gate_proj", "up_proj"), weight.chunk(2, dim=1), strict=True):
                yield f"{names.get_name(name.replace('gate_up_proj', part))}.weight", half
            continue
        part = name.split(".")[-2]
        if architecture.interleaved and part in heads:
            weight = interleave_rotary(weight, heads[part])
        theirs = names.get_name(name, (".weight", ".bias"))
        yield theirs if theirs.endswith((".weight", ".bias")) else f"{theirs}.weight", weight


def rotary_factors(model: PreTrainedModel) -> Tensor:
    """What llama.cpp divides each rotary frequency by (head_dim / 2,), float32."""
    scaled = cast(Tensor, model.model.rotary_emb.inv_freq).float().cpu()
    exponents = torch.arange(len(scaled), dtype=torch.float32) / len(scaled)
    return model.config.rope_parameters["rope_theta"] ** -exponents / scaled


def interleave_rotary(weight: Tensor, heads: int) -> Tensor:
    """The rows of a query or key projection, with dimensions half a head apart made neighbours."""
    halves = weight.unflatten(0, (heads, 2, -1))
    return torch.transpose(halves, 1, 2).reshape(weight.shape)


NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""llama.cpp's types of tokens."""


@dataclass(frozen=True)
class GgufVocabulary:
    """Token texts and types by id, and merges in their order, each two texts with a space between."""

    tokens: list[str]
    types: list[int]
    merges: list[str]


def gguf_vocabulary(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> GgufVocabulary:
    """The vocabulary of a byte-level BPE that splits text like GPT-2; free ids below `vocab_size` are named.

    InputError for any other tokenizer. llama.cpp's own converter knows published ones; it recognises them by
    a hash of what they make of a test string, which no newly trained tokenizer can match.
    """
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    if not splits_as_gpt2(parts) or tokenizer.num_special_tokens_to_add():
        raise InputError(
            "its tokenizer is not a byte-level BPE that splits text as GPT-2 does; use --to llama or --to "
            "mixtral, and llama.cpp's own convert_hf_to_gguf.py on that folder"
        )
    if not parts["model"]["merges"]:
        raise InputError(
            "its tokenizer has bytes alone and merges none, which llama.cpp does not load; use --to llama or "
            "--to mixtral"
        )
    texts = {i: text for text, i in parts["model"]["vocab"].items()}
    types = dict.fromkeys(texts, NORMAL)
    for added in parts["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    return GgufVocabulary(
        tokens=[texts.get(i, f"[UNUSED{i}]") for i in range(vocab_size)],
        types=[types.get(i, UNUSED) for i in range(vocab_size)],
        merges=[" ".join(pair) for pair in parts["model"]["merges"]],
    )
