"""Sparse designs leave as mixtures of transformers with the same logits, or are refused with the reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from export.exported import CLOSE, SERVED_CASES, assert_equal, case_name, converted, model_of
from loriini import DESIGNS, RoutingConfig
from loriini.common.errors import InputError
from loriini.export.architectures import CONVERTERS, SERVED, RoutedBy, formats_of
from loriini.export.formats import FORMATS
from loriini.model.weights.pretrained import from_transformers
from tiny import random_ids, tiny_config

MIXTRAL = DESIGNS["mixtral"]


@pytest.mark.parametrize(("to", "design", "settings"), SERVED_CASES, ids=case_name)
@torch.no_grad()
def test_the_logits_and_the_text_are_the_models(
    to: str, design: RoutingConfig, settings: dict[str, Any]
) -> None:
    model = model_of(design, **settings)
    exported = converted(model, to)
    assert exported.config.model_type == to
    assert_equal(model, exported, RoutedBy())


@pytest.mark.parametrize("to", SERVED)
@torch.no_grad()
def test_what_is_saved_loads_by_transformers_and_by_us(to: str, tmp_path: Path) -> None:
    design, settings = next((design, settings) for name, design, settings in SERVED_CASES if name == to)
    model, ids = model_of(design, **settings), random_ids()
    converted(model, to).save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, **CLOSE)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:  # other programs know experts by number
        assert any(".experts.3." in name for name in file.keys())  # noqa: SIM118
    torch.testing.assert_close(from_transformers(loaded)(ids).logits, model(ids).logits, **CLOSE)


@pytest.mark.parametrize(
    ("to", "design", "settings", "reason"),
    [
        ("mixtral", "switch", {}, r"its router is not linear \(scorer=mlp\); use --to hf$"),
        ("mixtral", "aoe", {}, r"its router is not linear \(scorer=activation_norm\); use --to hf$"),
        ("mixtral", "segment-then-token", {}, r"its router is not linear \(scorer=linear_segment\)"),
        ("mixtral", "lory", {}, "it routes by segment, not by token; use --to hf or llama or gguf"),
        ("mixtral", "dense", {"num_experts": 1}, "it is dense; use --to hf or llama or gguf"),
        ("mixtral", "token-top-p", {}, r"the number of experts varies \(selection=top_p\)"),
        ("mixtral", "relu", {}, r"the number of experts varies \(selection=positive\)"),
        ("mixtral", "deepseek-v3", {}, r"its selection has a bias \(balance_bias\)"),
        (
            "mixtral",
            "ec-token",
            {},
            "its gates are softmax_all, and Mixtral has softmax_selected; use --to hf$",
        ),
        ("mixtral", "mixtral", {"block": "gpt2"}, "block=gpt2 has no gated experts"),
        ("mixtral", "mixtral", {"lm_head_bias": True}, r"that architecture has no lm_head\.bias"),
        ("mixtral", "mixtral", {"attention_bias": True}, r"has no model\.layers\.0\.self_attn\.\w+\.bias"),
        ("mixtral", "mixtral", {"block": "olmoe"}, r"has no .*k_norm\.weight; use --to hf or olmoe"),
        ("olmoe", "mixtral", {}, r"also has .*k_norm\.weight; use --to hf or mixtral or gguf"),
        (
            "olmoe",
            "mixtral",
            {"qk_norm": "head"},
            r"q_norm\.weight is \[8\], and \[16\] in that architecture",
        ),
        ("phimoe", "mixtral", {"block": "phimoe"}, "its gates are softmax_selected, and Phi-3.5-MoE has"),
    ],
    ids=str,
)
def test_other_models_are_refused_with_what_works(
    to: str, design: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError, match=f"^this model cannot be exported as {to}: .*{reason}"):
        converted(model_of(DESIGNS[design], **settings), to)


def test_a_phimoe_has_two_experts_a_token_and_none_is_shared() -> None:
    mixer = replace(MIXTRAL, gates="sparse_mixer")
    with pytest.raises(InputError, match=r"its top k is 3, and Phi-3\.5-MoE's is 2"):
        converted(model_of(replace(mixer, top_k=3), block="phimoe"), "phimoe")
    with pytest.raises(InputError, match=r"it has shared experts, and Phi-3\.5-MoE has none"):
        converted(model_of(replace(mixer, num_shared_experts=1), block="phimoe"), "phimoe")


def test_every_format_has_a_function() -> None:
    assert list(CONVERTERS) == list(FORMATS)


@pytest.mark.parametrize(
    ("design", "formats"),
    [("mixtral", ["hf", "mixtral", "gguf"]), ("lory", ["hf", "llama", "gguf"]), ("aoe", ["hf"])],
)
def test_the_formats_of_a_design(design: str, formats: list[str]) -> None:
    assert formats_of(tiny_config(design)) == formats


def test_weights_are_shared_but_for_the_experts() -> None:
    model = model_of(MIXTRAL)
    ours = {weight.data_ptr() for weight in model.parameters()}
    theirs = {
        name
        for name, weight in converted(model, "mixtral").named_parameters()
        if weight.data_ptr() not in ours
    }
    assert {name.split(".mlp.")[1] for name in theirs} == {"experts.gate_up_proj"}
