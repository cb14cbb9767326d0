"""Every family of transformers has the same logits as ours, and their weights; what ours lacks is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from loriini.common.errors import InputError
from loriini.model.weights.loading import load_config, load_model
from loriini.model.weights.pretrained import FAMILIES, from_transformers
from model.families import MIXTURES, TINY_FAMILIES
from runs import EOS, write_tokenizer
from runs import VOCABULARY as WORDS
from tiny import CLOSE, random_ids

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 4.0],
    "original_max_position_embeddings": 8,
}


def rope(**settings: Any) -> dict[str, Any]:
    """Short contexts, so that every kind of scaling acts within a few tokens."""
    return {"rope_parameters": {"rope_theta": 50.0, **settings}, "max_position_embeddings": 8}


CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True, "rms_norm_eps": 1e-2}),
    ("llama", {"head_dim": 6, "attention_bias": True}),
    ("llama", rope()),
    ("llama", rope(rope_type="linear", factor=4.0)),
    ("llama", rope(rope_type="dynamic", factor=4.0)),
    ("llama", rope(**YARN)),
    ("llama", rope(**LLAMA3)),
    ("llama", rope(**LONGROPE)),
    ("mistral", {"sliding_window": 64, "max_position_embeddings": 64, "head_dim": 8}),
    ("qwen2", {"tie_word_embeddings": True, "use_sliding_window": True, "max_window_layers": 2}),
    ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3", {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 18}),
    ("qwen3_moe", {"norm_topk_prob": True}),
    ("gpt2", {"n_inner": None, "tie_word_embeddings": False}),
    ("mixtral", {"num_experts_per_tok": 3, "head_dim": 6}),
    ("olmoe", {"norm_topk_prob": True, "attention_bias": True}),
    ("phimoe", {"attention_bias": False, "lm_head_bias": False, "tie_word_embeddings": True}),
    ("phimoe", rope(**LONGROPE, short_mscale=1.2, long_mscale=1.4)),
    ("phimoe", {"router_jitter_noise": 0.01, "sliding_window": 4096 * 32}),
    ("stablelm", {"use_qkv_bias": True, "tie_word_embeddings": True, "layer_norm_eps": 1e-2}),
    ("stablelm", {"num_attention_heads": 2, "partial_rotary_factor": 0.25, "use_qkv_bias": True}),
    ("stablelm", {"partial_rotary_factor": 1.0}),
]


@pytest.mark.parametrize(("family", "changes"), CASES, ids=str)
@torch.no_grad()
def test_a_family_has_the_same_logits(family: str, changes: dict[str, Any]) -> None:
    theirs, ids = TINY_FAMILIES[family](**changes), random_ids()
    ours = from_transformers(theirs)
    for length in (6, 11):  # positions may be scaled by other factors from 8 on
        torch.testing.assert_close(ours(ids[:, :length]).logits, theirs(ids[:, :length]).logits, **CLOSE)
    torch.testing.assert_close(ours(ids, labels=ids).loss, theirs(ids, labels=ids).loss, **CLOSE)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    found = ours(ids, attention_mask=mask).logits[mask.bool()]
    expected = theirs(ids, attention_mask=mask, position_ids=positions).logits[mask.bool()]
    torch.testing.assert_close(found, expected, **CLOSE)
    arguments = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 2}
    assert torch.equal(ours.generate(ids, **arguments), theirs.generate(ids, **arguments))
    assert ours.config.parameters()[0] == sum(p.numel() for p in set(ours.parameters()))
    assert ours.config.parameters()[0] == sum(p.numel() for p in set(theirs.parameters()))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"mlp_bias": True}),
        ("llama", {"hidden_act": "gelu"}),
        ("gpt2", {"activation_function": "relu"}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("mistral", {"sliding_window": 8}),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}),
        ("qwen3_moe", {"mlp_only_layers": [0]}),
        ("mixtral", {"router_jitter_noise": 0.1}),
        ("olmoe", {"clip_qkv": 8.0}),
        ("phimoe", {"num_experts_per_tok": 3}),
        ("phimoe", {"sliding_window": 8}),
        ("stablelm", {"use_parallel_residual": True}),
        ("stablelm", {"qk_layernorm": True}),
        ("stablelm", {"hidden_dropout": 0.1}),
    ],
    ids=str,
)
def test_what_ours_lacks_is_refused_by_name(family: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(changes))} is "):
        from_transformers(TINY_FAMILIES[family](**changes))


@pytest.mark.parametrize("family", MIXTURES)
def test_a_mixture_keeps_its_dtype_mode_and_weight_of_load_balancing(family: str) -> None:
    model = from_transformers(TINY_FAMILIES[family](router_aux_loss_coef=0.037).bfloat16().train())
    assert model.config.routing.load_balance == 0.037
    assert model.dtype == torch.bfloat16
    assert model.training


@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("tied", [False, True])
def test_all_weights_but_gate_and_up_are_shared(family: str, tied: bool) -> None:
    mixture = TINY_FAMILIES[family](tie_word_embeddings=tied)
    model = from_transformers(mixture)
    theirs = {weight.untyped_storage().data_ptr() for weight in mixture.state_dict().values()}
    ours = {name: weight.untyped_storage().data_ptr() for name, weight in model.state_dict().items()}
    copied = {name for name, pointer in ours.items() if pointer not in theirs}
    assert {name.rsplit(".", 1)[-1] for name in copied} == {"gate_proj", "up_proj"}
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert not any(buffer.is_meta for buffer in model.buffers())


def saved(folder: Path, family: str = "llama", **changes: Any) -> Path:
    """A folder of a tiny model with a tokenizer."""
    TINY_FAMILIES[family](vocab_size=WORDS, **changes).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def test_a_model_ends_at_the_tokens_of_its_generation_settings(tmp_path: Path) -> None:
    """Models for chats name more of them there than in their configuration."""
    folder = saved(tmp_path)
    theirs = {"eos_token_id": [EOS, 3], "temperature": 0.3, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(theirs))
    settings = load_model(folder)[0].generation_config
    assert settings.eos_token_id == [EOS, 3]
    assert settings.temperature != 0.3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_of_every_family_loads(family: str, tmp_path: Path) -> None:
    folder, ids = saved(tmp_path, family), random_ids()
    model, tokenizer = load_model(folder)
    theirs = FAMILIES[family].model.from_pretrained(folder)
    torch.testing.assert_close(model(ids).logits, theirs(ids).logits, **CLOSE)
    assert tokenizer.eos_token_id == EOS
    assert {**load_config(folder).to_dict(), "dtype": "float32"} == model.config.to_dict()


def test_a_folder_without_a_tensor_is_refused_in_one_line(tmp_path: Path) -> None:
    path, missing = saved(tmp_path) / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    weights = {name: weight for name, weight in load_file(path).items() if name != missing}
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match=f"^{tmp_path}: .*{missing}.*$"):
        load_model(tmp_path)
