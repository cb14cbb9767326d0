"""A GGUF file runs in llama.cpp and continues a prompt as the model does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.exported import case_name, model_of
from loriini import DESIGNS, RoutingConfig
from loriini.common.errors import InputError
from loriini.export.export import ExportSettings, export_model
from loriini.export.gguf_file import gguf_vocabulary
from runs import byte_tokenizer

gguf = pytest.importorskip("gguf", reason="GGUF files are written by the extra loriini[gguf]")

EOS = 256
PAIRS = [(a, b) for a in "etao" for b in "etaoinsrhl"]
PROMPT = "Is this <eos> noise, or is it_not?  A  test: äß 12 3456\n\n it's"
MIXTRAL = DESIGNS["mixtral"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: list[tuple[RoutingConfig, dict[str, Any], str]] = [
    (DESIGNS["lory"], {}, "llama"),
    (DESIGNS["sequence-top2"], {"num_key_value_heads": 1}, "llama"),
    (DESIGNS["lory"], {"rope_parameters": LLAMA3}, "llama"),
    (MIXTRAL, {"rope_parameters": LLAMA3}, "llama"),
    (MIXTRAL, {"num_key_value_heads": 1, "head_dim": 12}, "llama"),
    (DESIGNS["frozen"], {"tie_word_embeddings": True}, "llama"),
    (DESIGNS["token-ec2"], {"qk_norm": "all"}, "olmoe"),
    (DESIGNS["token-ec2"], {"qk_norm": "all", "tie_word_embeddings": True}, "olmoe"),
    (replace(MIXTRAL, gates="softmax_all", top_k=4), {"qk_norm": "all", "num_experts": 4}, "olmoe"),
]


def written(folder: Path, design: RoutingConfig, dtype: str = "float32", **settings: Any) -> tuple[Any, Path]:
    tokenizer = byte_tokenizer(PAIRS)
    special = {"eos_token_id": 256, "bos_token_id": 256, "max_position_embeddings": 128}
    settings = {"expert_scale": "initializer", **settings}  # routes by margins above rounding
    model = model_of(design, vocab_size=len(tokenizer) + 3, **special, **settings)
    prompt = PROMPT if design.unit != "token" else None
    return model, export_model(model, tokenizer, ExportSettings("gguf", dtype, prompt=prompt), folder / "out")


@pytest.mark.parametrize(("design", "settings", "architecture"), CASES, ids=case_name)
@torch.no_grad()
def test_llama_cpp_continues_as_the_model_does(
    design: RoutingConfig, settings: dict[str, Any], architecture: str, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("xllamacpp", reason="llama.cpp for Python, in the extra loriini[test]")
    model, path = written(tmp_path, design, **settings)
    tokenizer = byte_tokenizer(PAIRS)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    settings = {"max_new_tokens": 10, "do_sample": False, "suppress_tokens": [256], "pad_token_id": 256}
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    reader = gguf.GGUFReader(path)
    assert reader.get_field("general.architecture").contents() == architecture

    parameters = llama_cpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.cpuparams.n_threads = 128, 1, 1
    parameters.warmup, parameters.fit_params = False, False
    float32 = llama_cpp.ggml_type.GGML_TYPE_F32
    parameters.cache_type_k, parameters.cache_type_v = float32, float32
    request = {"prompt": PROMPT, "max_tokens": 10, "temperature": 0, "ignore_eos": True}
    answer = llama_cpp.Server(parameters).handle_completions(request)
    assert answer["usage"]["prompt_tokens"] == ids.shape[1]
    assert answer["choices"][0]["text"] == tokenizer.decode(expected[0, ids.shape[1] :])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matrices_have_the_type_asked_for_and_vectors_and_routers_are_float32(
    dtype: str, tmp_path: Path
) -> None:
    model, path = written(tmp_path, MIXTRAL, dtype)
    reader = gguf.GGUFReader(path)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    wide = {"float16": "F16", "bfloat16": "BF16"}[dtype]
    assert types["blk.0.ffn_up_exps.weight"] == types["token_embd.weight"] == wide
    assert types["blk.0.attn_norm.weight"] == types["blk.1.ffn_gate_inp.weight"] == "F32"
    down = next(t for t in reader.tensors if t.name == "blk.1.ffn_down_exps.weight")
    read = gguf.quants.dequantize(down.data, down.tensor_type)
    expected = model.model.mixtures[1].experts.down_proj.detach().float().numpy()
    np.testing.assert_allclose(read, expected, rtol=1e-2, atol=1e-3)


def test_a_chats_template_and_the_ends_of_its_turns_are_written(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(PAIRS[:2])
    tokenizer.chat_template = {"default": "plain", "tools": "with tools"}
    model = model_of(MIXTRAL, vocab_size=len(tokenizer), eos_token_id=EOS)
    model.generation_config.eos_token_id = [EOS, 257]
    reader = gguf.GGUFReader(export_model(model, tokenizer, ExportSettings("gguf"), tmp_path / "out"))
    written_templates = [reader.get_field(f"tokenizer.chat_template{end}") for end in ("", ".tools")]
    assert [field.contents() for field in written_templates] == ["plain", "with tools"]
    assert reader.get_field("tokenizer.ggml.eos_token_id").contents() == EOS
    assert reader.get_field("tokenizer.ggml.eot_token_id").contents() == 257


def test_a_tokenizer_without_merges_is_refused() -> None:
    with pytest.raises(InputError, match="merges"):
        gguf_vocabulary(byte_tokenizer(), 260)


def test_ids_without_a_token_are_filled() -> None:
    tokenizer = byte_tokenizer(PAIRS[:2])
    vocabulary = gguf_vocabulary(tokenizer, 262)
    assert vocabulary.merges == ["e e", "e t"]
    assert vocabulary.tokens[256] == "<eos>"
    assert vocabulary.tokens[259:] == ["[UNUSED259]", "[UNUSED260]", "[UNUSED261]"]
    assert vocabulary.types[255:] == [1, 3, 1, 1, 5, 5, 5]


@pytest.mark.parametrize(
    ("design", "settings", "named"),
    [
        (DESIGNS["aoe"], {}, "router"),
        (MIXTRAL, {"qk_norm": "all"}, "norm_topk_prob"),
        (DESIGNS["token-ec2"], {"qk_norm": "all", "attention_bias": True}, "attention_bias"),
        (DESIGNS["token-ec2"], {"qk_norm": "all", "num_key_value_heads": 1}, "key"),
        (replace(MIXTRAL, gates="sparse_mixer"), {"block": "phimoe"}, "phimoe"),
    ],
    ids=case_name,
)
def test_models_that_llama_cpp_does_not_have_are_refused(
    design: RoutingConfig, settings: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=named):
        written(tmp_path, design, **settings)
