"""A mixture that a prompt or a label decides once leaves as a Llama that holds the chosen experts only."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from export.exported import (
    DENSE_CASES,
    QWEN2,
    assert_equal,
    byte_tokenizer,
    case_name,
    converted,
    decided_by,
    model_of,
)
from loriini import DESIGNS, LoriiniConfig, RoutingConfig
from loriini.common.errors import InputError
from loriini.export.converting import RoutedBy
from loriini.export.export import ExportSettings, export_model
from loriini.model.weights.conversion import soft_to_top_k
from loriini.routing.design import Combination
from tiny import random_ids, tiny_model

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


@torch.no_grad()
def test_another_prompt_gives_another_llama() -> None:
    model, ids = model_of(DESIGNS["lory"]), random_ids(1, 9)
    llamas = [converted(model, "llama", decided_by(model, ids[:, :n])) for n in (2, 6)]
    assert not torch.allclose(*(llama(ids).logits for llama in llamas), atol=1e-3)


@pytest.mark.parametrize(
    ("combination", "held"), [("parameters", 1), ("outputs", 2)], ids=["merged once", "side by side"]
)
def test_a_narrowed_mixture_holds_k_experts_after_its_prompt(combination: Combination, held: int) -> None:
    sparse = soft_to_top_k(model_of(DESIGNS["lory"], num_experts=8), 2, combination)
    decision = decided_by(sparse)
    llama = converted(sparse, "llama", decision)
    assert_equal(sparse, llama, decision)
    bytes_of = [
        sum(w.numel() * w.element_size() for name, w in model.named_parameters() if part in name)
        for model, part in ((sparse, ".mlp.experts."), (llama, ".mlp."))
    ]
    assert bytes_of[1] == bytes_of[0] * held / 8
    storages = {w.untyped_storage().data_ptr(): w.untyped_storage().nbytes() for w in llama.parameters()}
    experts = sum(w.numel() * w.element_size() for w in sparse.model.mixtures[0].experts.parameters())
    assert max(storages.values()) < experts  # and none of the rest is kept alive behind a view


@pytest.mark.parametrize(
    ("design", "settings", "reason"),
    [
        ("mixtral", {}, "every token chooses its own experts, .*; use --to hf or mixtral"),
        ("aoe", {}, "every token chooses its own experts, .*; use --to hf$"),
        ("lory", {"block": "gpt2"}, "block=gpt2 has no gated experts"),
        ("lory", {"block": "olmoe"}, r"that architecture has no .*k_norm\.weight"),
        ("lory", {"block": "phimoe"}, r"that architecture has no .*layernorm\.bias"),
        ("lory", {"lm_head_bias": True}, r"that architecture has no lm_head\.bias"),
        (
            "lory",
            {"qk_norm": "head"},
            r".* has no .*k_norm\.weight; use --to hf or qwen3 or gguf",
        ),
        ("lory", {"attention_out_bias": True}, r"that architecture has no .*o_proj\.bias; use --to hf$"),
        ("lory", QWEN2, r"that architecture also has .*o_proj\.bias; use --to hf or qwen2 or gguf"),
    ],
    ids=str,
)
def test_other_models_are_refused_with_what_works(design: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=f"^this model cannot be exported as llama: {reason}"):
        converted(model_of(DESIGNS[design], **settings), "llama")


def test_a_prompt_for_a_block_without_a_dense_form_is_refused_for_that(tmp_path: Path) -> None:
    model, settings = model_of(DESIGNS["lory"], block="gpt2"), ExportSettings("llama", prompt=PROMPT)
    with pytest.raises(
        InputError, match=r"cannot be exported as llama: block=gpt2 has no gated experts.*use --to hf"
    ):
        export_model(model, byte_tokenizer(), settings, tmp_path / "out")


def test_narrowing_keeps_how_experts_are_combined(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    sparse = soft_to_top_k(model_of(DESIGNS["lory"], vocab_size=len(tokenizer)), 3, "outputs")
    out = export_model(sparse, tokenizer, ExportSettings("hf", top_k=2), tmp_path / "out")
    routing = LoriiniConfig.from_pretrained(out).routing
    assert (routing.top_k, routing.combination) == (2, "outputs")


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
