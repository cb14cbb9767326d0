"""Every family of transformers has the same logits as ours; what ours lacks is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from loriini.common.errors import InputError
from loriini.model.weights.loading import load_config, load_model
from loriini.model.weights.pretrained import FAMILIES, from_transformers
from model.families import TINY_FAMILIES
from runs import EOS, write_tokenizer
from runs import VOCABULARY as WORDS
from tiny import random_ids

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
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
    ("llama", {"num_key_value_heads": 4}),
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
    ("qwen2", rope(**YARN)),
    ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3", {"num_attention_heads": 3, "num_key_value_heads": 1, "hidden_size": 18}),
    ("qwen3_moe", {"norm_topk_prob": True}),
    ("gpt2", {"n_inner": None, "tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("family", "changes"), CASES, ids=str)
@torch.no_grad()
def test_a_family_has_the_same_logits(family: str, changes: dict[str, Any]) -> None:
    theirs, ids = TINY_FAMILIES[family](**changes), random_ids()
    ours = from_transformers(theirs)
    for length in (6, 11):
        torch.testing.assert_close(ours(ids[:, :length]).logits, theirs(ids[:, :length]).logits, **CLOSE)
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
    ("family", "changes", "reason"),
    [
        ("llama", {"mlp_bias": True}, "mlp_bias is True; only models with False can be loaded"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; only models with 'silu'"),
        ("qwen3", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("mistral", {"sliding_window": 8}, "sliding_window is 8"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "window is 8"),
        ("qwen3_moe", {"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\]; only models with \[\]"),
        ("llama", {"rope_parameters": {"rope_type": "proportional"}}, "rope_type is 'proportional'"),
    ],
    ids=str,
)
def test_what_ours_lacks_is_refused_by_name(family: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_transformers(TINY_FAMILIES[family](**changes))


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


def change_weights(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def change_config(**changes: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **changes}))

    return apply


def narrower(weights: dict[str, Any]) -> None:
    weights["model.norm.weight"] = weights["model.norm.weight"][:8].clone()


def to_pickle(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            change_weights(lambda w: w.pop("model.layers.1.mlp.up_proj.weight")),
            r"it lacks 1 tensors, such as model\.layers\.1\.mlp\.up_proj\.weight",
        ),
        (change_weights(narrower), r"model\.norm\.weight has shape \(8,\) instead of \(16,\)"),
        (change_config(model_type="bert"), "its model_type is bert; it must be one of: loriini, llama, "),
        (change_config(hidden_act="gelu"), "hidden_act is 'gelu'; only models with 'silu'"),
        (change_config(hidden_size="many"), "cannot be read"),
        (change_config(rope_parameters={"rope_type": "yarn"}), "cannot be read .*factor"),
        (to_pickle, "cannot be read"),
    ],
    ids=["a missing tensor", "a wrong shape", "type", "setting", "wrong type", "rotary settings", "a pickle"],
)
def test_a_folder_that_cannot_be_read_is_one_line(
    damage: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    damage(saved(tmp_path))
    with pytest.raises(InputError, match=reason) as refused:
        load_model(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}: the model cannot be read (")
    assert "\n" not in str(refused.value)
