"""Sparse designs leave as mixtures of transformers with the same logits, or are refused with the reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from export.exported import SERVED_CASES, assert_equal, case_name, converted, model_of
from loriini import DESIGNS, RoutingConfig
from loriini.common.errors import InputError
from loriini.export.converters import SERVED, RoutedBy, formats_of
from loriini.model.weights.pretrained import from_transformers
from tiny import CLOSE, random_ids, tiny_config

MIXTRAL = DESIGNS["mixtral"]
HALF = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
"""Half of each head is rotated."""
MIXER = replace(MIXTRAL, gates="sparse_mixer")


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
    ("to", "design", "settings", "named"),
    [
        ("mixtral", "switch", {}, "scorer=mlp"),
        ("mixtral", "aoe", {}, "scorer=activation_norm"),
        ("mixtral", "segment-then-token", {}, "scorer=linear_segment"),
        ("mixtral", "lory", {}, "by segment"),
        ("mixtral", "dense", {"num_experts": 1}, "dense"),
        ("mixtral", "token-top-p", {}, "selection=top_p"),
        ("mixtral", "relu", {}, "selection=positive"),
        ("mixtral", "deepseek-v3", {}, "balance_bias"),
        ("mixtral", "ec-token", {}, "softmax_all"),
        ("mixtral", "mixtral", {"block": "gpt2"}, "block=gpt2"),
        ("mixtral", "mixtral", {"rope_parameters": HALF}, r"partial_rotary_factor is 0\.5"),
        ("mixtral", "mixtral", {"qk_norm": "all"}, r"k_norm\.weight"),
        ("olmoe", "mixtral", {}, r"k_norm\.weight"),
        ("phimoe", "mixtral", {"block": "phimoe"}, "softmax_selected"),
        ("phimoe", replace(MIXER, top_k=3), {"block": "phimoe"}, "top k is 3"),
        ("phimoe", replace(MIXER, num_shared_experts=1), {"block": "phimoe"}, "shared"),
    ],
    ids=case_name,
)
def test_other_models_are_refused_with_what_works(
    to: str, design: str | RoutingConfig, settings: dict[str, Any], named: str
) -> None:
    design = DESIGNS[design] if isinstance(design, str) else design
    with pytest.raises(InputError, match=f"as {to}: .*{named}.*use --to hf"):
        converted(model_of(design, **settings), to)


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
