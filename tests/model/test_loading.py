"""A model is read from a run or a Hugging Face folder; anything else is refused with a remedy."""

from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from loriini.common.errors import InputError
from loriini.model.weights.loading import load_model, readable
from runs import tiny_run, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tiny_run(steps=1, batch_size=1), tmp_path_factory.mktemp("run"))


def test_a_run_and_its_model_folder_are_the_same_model(run: Path) -> None:
    (model, tokenizer), (same, _) = load_model(run), load_model(run / "model")
    assert not model.training
    assert tokenizer.decode([3, 1]) == "w3 w1"
    weights, config = (run / "model" / name for name in ("model.safetensors", "config.json"))
    assert weights.stat().st_mode == config.stat().st_mode  # whoever may read the folder may read them
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))


@pytest.mark.parametrize("shown", [True, False])
def test_progress_bars_of_transformers_stay_as_they_were(shown: bool, run: Path) -> None:
    before = logging.is_progress_bar_enabled()
    try:
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
        load_model(run)
        assert logging.is_progress_bar_enabled() == shown
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    for path, kind in ((tmp_path, ""), (tmp_path / "absent", r" \(there is no such folder\)")):
        told = f"{path}: no trained model here{kind}; give a run's folder.* ORG/NAME"
        with pytest.raises(InputError, match=told):
            load_model(path)


def test_an_unfinished_run_is_told_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=f"finish it with `loriini train --resume {tmp_path}`"):
        load_model(tmp_path)


@pytest.mark.parametrize("error", [EOFError, AssertionError, Exception])
def test_whatever_reading_raises_is_an_error_of_the_folder(error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the model cannot be read \(it\s+ends\)"), readable(tmp_path):
        raise error("it\n ends")
    with pytest.raises(MemoryError), readable(tmp_path):
        raise MemoryError
