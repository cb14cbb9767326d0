"""What a run that starts from a model takes of it, and what it says of the rest."""

from pathlib import Path
from typing import Any

import pytest

from loriini.launch import recipe
from model.families import TINY_FAMILIES
from runs import write_tokenizer


def saved(folder: Path, family: str, **changes: Any) -> str:
    TINY_FAMILIES[family](**changes).save_pretrained(folder)
    return str(write_tokenizer(folder))


def test_overrides_are_of_the_design_that_the_model_has(tmp_path: Path) -> None:
    folder = saved(tmp_path, "mixtral")
    run = recipe("tiny-lory", ["--routing.load_balance", "0.02", "--length=16"], folder)
    assert (run.routing.selection, run.routing.load_balance, run.length) == ("top_k", 0.02, 16)


def test_dropout_that_a_run_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path, "llama", attention_dropout=0.1)
    recipe("tiny-dense", ["--length", "16"], folder)
    assert f"{folder} has attention_dropout 0.1; it is trained without" in capsys.readouterr().err
