"""A checkpoint of an unfinished run is exported as the model that it holds."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from loriini.common.errors import InputError
from loriini.export.checkpoints import load_checkpoint
from loriini.export.export import ExportSettings, export_run
from loriini.model.weights.loading import load_model
from loriini.train.checkpoints.state import STATE
from loriini.train.checkpoints.storage import CheckpointConfig
from loriini.train.config import read_run
from loriini.train.corpora import read_corpora
from loriini.train.loop import train
from runs import COPIED_AT, prepared, stop, tiny_run


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten steps that was stopped after six, with a checkpoint of every second."""
    folder = tmp_path_factory.mktemp("unfinished")
    corpus = prepared(folder / "corpus", length=32).folder
    run = tiny_run(checkpoint=CheckpointConfig(every=2, keep=9), corpus=(corpus,))
    stop(run, read_corpora(run.corpus), folder / "run", 6)
    return folder / "run"


def test_a_step_is_exported_with_its_numbers(unfinished: Path, tmp_path: Path) -> None:
    out = export_run(unfinished, ExportSettings("hf", step=6), tmp_path / "six")
    assert AutoModelForCausalLM.from_pretrained(out).config.num_experts == 3
    assert "- **steps**: 6 of 10\n- **training tokens**: 768\n" in (out / "README.md").read_text()
    dense = export_run(unfinished, ExportSettings("llama", step=COPIED_AT), tmp_path / "dense")
    assert json.loads((dense / "config.json").read_text())["model_type"] == "llama"
    assert "- **design**: dense, one FFN a layer" in (dense / "README.md").read_text()


def test_a_step_of_a_run_made_again_is_not_taken_for_the_one_that_was_exported(
    unfinished: Path, tmp_path: Path
) -> None:
    settings, run, out = ExportSettings("hf", step=2), tmp_path / "run", tmp_path / "two"
    shutil.copytree(unfinished, run)
    written = export_run(run, settings, out)
    before = (written / "config.json").stat().st_mtime_ns
    assert export_run(run, settings, out) == written
    assert (written / "config.json").stat().st_mtime_ns == before
    state = next(run.glob("checkpoints/step-*2")) / STATE
    recorded = json.loads(state.read_text())
    recorded["sha256"] = dict.fromkeys(recorded["sha256"], "0" * 64)
    state.write_text(json.dumps(recorded))
    with pytest.raises(InputError, match="different: source"):
        export_run(run, settings, out)


def test_the_last_step_is_the_final_model_where_its_corpus_was_moved_too(
    unfinished: Path, tmp_path: Path
) -> None:
    run, _ = read_run(unfinished / "run.json")
    out, corpus = tmp_path / "run", shutil.copytree(run.corpus[0], tmp_path / "corpus")
    train(replace(run, corpus=(corpus,)), read_corpora([corpus]), out)
    loaded = [load_checkpoint(out, 10)]
    shutil.rmtree(corpus)
    loaded.append(load_checkpoint(out, 10))
    final, same = load_model(out)
    for model, tokenizer in loaded:
        assert not model.training
        assert tokenizer.get_vocab() == same.get_vocab()
        assert model.config.to_dict() == loaded[0][0].config.to_dict()
        assert model.config.eos_token_id == final.config.eos_token_id
        for name, weight in final.state_dict().items():
            assert torch.equal(model.state_dict()[name], weight), name
    assert not corpus.exists()


def test_another_step_is_refused_with_those_there_are(unfinished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--step 5: .*2, 4, 6"):
        load_checkpoint(unfinished, 5)
    with pytest.raises(InputError, match="--step"):
        export_run(tmp_path, ExportSettings("hf", step=5), tmp_path / "out")
