"""What a run that starts from a model takes of it, and what it says of the rest."""

from pathlib import Path
from typing import Any

import pytest

from loriini.train.launch import resolve_recipe
from model.families import TINY_FAMILIES
from runs import write_tokenizer
from tiny import tiny_model


def saved(folder: Path, family: str, **changes: Any) -> str:
    TINY_FAMILIES[family](**changes).save_pretrained(folder)
    return str(write_tokenizer(folder))


def test_overrides_are_of_the_design_that_the_model_has(tmp_path: Path) -> None:
    folder = saved(tmp_path, "mixtral")
    run = resolve_recipe("tiny-lory", ["--routing.load_balance", "0.02", "--length=16"], folder)
    assert (run.routing.selection, run.routing.load_balance, run.length) == ("top_k", 0.02, 16)


def test_settings_of_training_are_the_recipes(tmp_path: Path) -> None:
    """A model that was trained with a z-loss and recomputed merges."""
    folder = tmp_path / "model"
    tiny_model("lory", output_z=1e-4, recompute_merge=True).save_pretrained(folder)
    run = resolve_recipe("tiny-lory", ["--length", "16"], str(write_tokenizer(folder)))
    assert (run.model.output_z, run.model.recompute_merge) == (0.0, "auto")
    run = resolve_recipe("tiny-lory", ["--length", "16", "--model.output_z", "1e-3"], str(folder))
    assert run.model.output_z == 1e-3


def test_dropout_that_a_run_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path, "llama", attention_dropout=0.1)
    resolve_recipe("tiny-dense", ["--length", "16"], folder)
    assert f"{folder} has attention_dropout 0.1; it is trained without" in capsys.readouterr().err
