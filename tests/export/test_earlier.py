"""Settings for transformers 4; `tests/earlier.py` compares the logits that it computes by them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from export.exported import byte_tokenizer, model_of
from loriini import DESIGNS
from loriini.export.export import ExportSettings, export_model

SCALED = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}


@pytest.mark.parametrize(
    ("to", "settings", "expected"),
    [
        ("mixtral", {}, {"rope_theta": 10_000.0, "rope_scaling": None}),
        (
            "mixtral",
            {"rope_parameters": SCALED},
            {"rope_theta": 500.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        ),
        ("qwen3_moe", {"qk_norm": "head"}, {"num_experts": 4, "rope_theta": 10_000.0}),
    ],
)
def test_both_versions_find_the_settings(
    to: str, settings: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    model = model_of(replace(DESIGNS["mixtral"]), vocab_size=260, **settings)
    export_model(model, byte_tokenizer(), ExportSettings(to), tmp_path / "out")
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert {name: written.get(name) for name in expected} == expected
    read = AutoConfig.from_pretrained(tmp_path / "out")
    assert read.rope_parameters == model.config.rope_parameters
    assert read.num_local_experts == 4
    encoded = AutoTokenizer.from_pretrained(tmp_path / "out")("owl")
    assert sorted(encoded) == ["attention_mask", "input_ids"]
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["tokenizer_class"] == (
        "PreTrainedTokenizerFast"
    )


def test_the_sides_of_a_tokenizers_own_class_are_kept(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.padding_side = tokenizer.truncation_side = "left"
    export_model(model_of(DESIGNS["mixtral"], vocab_size=260), tokenizer, ExportSettings("mixtral"), tmp_path)
    read = AutoTokenizer.from_pretrained(tmp_path)
    assert (read.padding_side, read.truncation_side) == ("left", "left")


def test_a_chat_models_ends_are_kept(tmp_path: Path) -> None:
    model = model_of(DESIGNS["mixtral"], vocab_size=260, eos_token_id=256)
    model.generation_config.eos_token_id = [256, 3]
    export_model(model, byte_tokenizer(), ExportSettings("mixtral"), tmp_path)
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == [256, 3]
