"""What an export writes: weights in another dtype, and settings that transformers 4 reads too."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, GPT2Config

from export.exported import model_of
from loriini import DESIGNS
from loriini.export.export import ExportSettings, export_model
from loriini.model.weights.loading import load_model, tokenizer_in
from runs import byte_tokenizer


def test_a_cast_leaves_the_biases_of_balancing_as_they_are(tmp_path: Path) -> None:
    model, biases = model_of(DESIGNS["deepseek-v3"]), torch.tensor([0.501, 0.502, 0.503, 0.504])
    for mixture in model.model.mixtures:
        mixture.router.balance_bias.copy_(biases)
    out = export_model(model, byte_tokenizer(), ExportSettings("hf", dtype="bfloat16"), tmp_path / "out")
    again, _ = load_model(out, "cpu")
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.model.mixtures[0].router.balance_bias, biases)


def test_special_tokens_that_a_class_names_are_kept(tmp_path: Path) -> None:
    """As GPT-2's on the Hub, whose tokenizer_config.json names none."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "<|endoftext|>": 1}, []))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    GPT2Config(vocab_size=2).save_pretrained(tmp_path)
    read = tokenizer_in(tmp_path)
    assert (read.eos_token, read.bos_token, read.vocab_size) == ("<|endoftext|>", "<|endoftext|>", 2)


SCALED = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}


@pytest.mark.parametrize(
    ("settings", "theta", "scaling"),
    [({}, 10_000.0, None), ({"rope_parameters": SCALED}, 500.0, {"rope_type": "linear", "factor": 4.0})],
)
def test_both_versions_find_the_settings(
    settings: dict[str, Any], theta: float, scaling: dict[str, Any] | None, tmp_path: Path
) -> None:
    model, tokenizer = model_of(DESIGNS["mixtral"], vocab_size=260, **settings), byte_tokenizer()
    tokenizer.padding_side = tokenizer.truncation_side = "left"
    export_model(model, tokenizer, ExportSettings("mixtral"), tmp_path / "out")
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert (written["rope_theta"], written.get("rope_scaling")) == (theta, scaling)
    read = AutoConfig.from_pretrained(tmp_path / "out")
    assert read.rope_parameters == model.config.rope_parameters
    assert read.num_local_experts == 4
    again = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (again.padding_side, again.truncation_side) == ("left", "left")
    assert sorted(again("owl")) == ["attention_mask", "input_ids"]
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["tokenizer_class"] == (
        "PreTrainedTokenizerFast"
    )


def test_a_chat_models_ends_are_kept(tmp_path: Path) -> None:
    model = model_of(DESIGNS["mixtral"], vocab_size=260, eos_token_id=256)
    model.generation_config.eos_token_id = [256, 3]
    export_model(model, byte_tokenizer(), ExportSettings("mixtral"), tmp_path)
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [256, 3]
