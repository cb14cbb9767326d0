"""What an export writes: weights in another dtype, and a tokenizer that splits text as the model's."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, PreTrainedTokenizerFast

from export.exported import QWEN2, byte_tokenizer, model_of
from loriini import DESIGNS
from loriini.export.export import PROBE, ExportSettings, export_model
from loriini.model.weights.loading import load_model, tokenizer_in


def test_a_cast_leaves_the_biases_of_balancing_as_they_are(
    tmp_path: Path,
) -> None:
    model, biases = model_of(DESIGNS["deepseek-v3"]), torch.tensor([0.501, 0.502, 0.503, 0.504])
    for mixture in model.model.mixtures:
        mixture.router.balance_bias.copy_(biases)
    out = export_model(model, byte_tokenizer(), ExportSettings("hf", dtype="bfloat16"), tmp_path / "out")
    again, _ = load_model(out, "cpu")
    assert again.dtype == torch.bfloat16
    assert torch.equal(again.model.mixtures[0].router.balance_bias, biases)


@pytest.mark.parametrize(("to", "settings", "warns"), [("qwen2", QWEN2, True), ("llama", {}, False)])
def test_a_tokenizer_that_transformers_reads_by_other_rules_is_warned_of(
    to: str,
    settings: dict[str, Any],
    warns: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It takes Qwen2's class for a model of this type, whatever its tokenizer.json says."""
    model = model_of(DESIGNS["lory"], vocab_size=400, **settings)
    tokenizer = byte_tokenizer(merges=100, letters="0123456789")
    out = export_model(model, tokenizer, ExportSettings(to, prompt="one prompt"), tmp_path / "out")
    assert ("reads this tokenizer by rules of another" in capsys.readouterr().err) == warns
    read = tokenizer_in(out)
    assert read(PROBE)["input_ids"] == tokenizer(PROBE)["input_ids"]
    assert (read.eos_token, read.bos_token) == ("<eos>", "<eos>")


def test_special_tokens_that_a_class_names_are_kept(tmp_path: Path) -> None:
    """As GPT-2's on the Hub, whose tokenizer_config.json names none."""
    tokenizer = Tokenizer(models.BPE({"a": 0, "<|endoftext|>": 1}, []))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    GPT2Config(vocab_size=2).save_pretrained(tmp_path)
    read = tokenizer_in(tmp_path)
    assert (read.eos_token, read.bos_token, read.vocab_size) == ("<|endoftext|>", "<|endoftext|>", 2)


def test_a_tokenizer_without_tokens_for_some_text_is_exported(tmp_path: Path) -> None:
    words_alone = Tokenizer(models.WordLevel({"w1": 0, "<eos>": 1}, unk_token="absent"))
    words_alone.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words_alone, eos_token="<eos>")
    export_model(model_of(DESIGNS["lory"]), tokenizer, ExportSettings("llama", prompt="w1"), tmp_path / "out")
