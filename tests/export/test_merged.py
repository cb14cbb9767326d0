"""A mixture that a prompt or a label decides once leaves as a Llama that holds the chosen experts only."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.exported import DENSE_CASES, assert_equal, case_name, converted, decided_by, model_of
from loriini import DESIGNS, RoutingConfig
from loriini.common.errors import InputError
from loriini.export.converters import RoutedBy
from loriini.export.export import ExportSettings, export_model
from runs import byte_tokenizer
from tiny import tiny_model

HALF = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
"""Half of each head is rotated."""
PROMPT = "one prompt decides it"


@pytest.mark.parametrize(("to", "design", "settings"), DENSE_CASES, ids=case_name)
@torch.no_grad()
def test_the_logits_and_the_text_are_the_models_after_the_prompt(
    to: str, design: RoutingConfig, settings: dict[str, Any]
) -> None:
    model = model_of(design, **settings)
    decision = decided_by(model)
    dense = converted(model, to, decision)
    assert dense.config.model_type == to
    assert_equal(model, dense, decision)


@pytest.mark.parametrize(
    ("design", "settings", "named"),
    [
        ("mixtral", {}, "every token .*use --to hf or mixtral"),
        ("lory", {"block": "gpt2"}, "block=gpt2"),
        ("lory", {"attention_out_bias": True}, r"o_proj\.bias"),
        ("dense", {"num_experts": 1, "rope_parameters": HALF}, r"partial_rotary_factor is 0\.5"),
    ],
    ids=str,
)
def test_other_models_are_refused_with_what_works(design: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=f"as llama: .*{named}"):
        converted(model_of(DESIGNS[design], **settings), "llama")


@torch.no_grad()
def test_layers_that_choose_different_numbers_of_experts_are_padded() -> None:
    model = tiny_model(replace(DESIGNS["sequence-top2"], selection="top_p", top_p=0.5))
    decision = decided_by(model)
    routings = model(decision.prompt_BL, prompt_lengths=torch.tensor([6])).routings
    counts = [int((routing.gates > 0).sum()) for routing in routings]
    llama = converted(model, "llama", RoutedBy(decision.prompt_BL))
    assert llama.config.intermediate_size == max(counts) * 24
    assert_equal(model, llama, decision)


@pytest.mark.parametrize("length", [4, 15, 16, 17, 20])
def test_a_prompt_may_end_anywhere_before_or_after_the_original_length(length: int, tmp_path: Path) -> None:
    """Longrope turns all of a text by other factors once it is longer: the prompt decided by the former."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 16}
    rotary = {"rope_theta": 10_000.0, "rope_type": "longrope", "factor": 4.0, **factors}
    tokenizer = byte_tokenizer()
    changes = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "rope_parameters": rotary}
    model = model_of(DESIGNS["lory"], **changes)
    folder = export_model(model, tokenizer, ExportSettings("llama", prompt=PROMPT[:length]), tmp_path / "out")
    assert json.loads((folder / "export.json").read_text())["max_logit_difference"] < 1e-4
