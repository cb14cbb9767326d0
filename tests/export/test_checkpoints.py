"""A checkpoint of an unfinished run is exported as the model that it holds."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from loriini.common.errors import InputError
from loriini.common.hub import RUN
from loriini.export.checkpoints import load_checkpoints
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
    out = export_run(unfinished, ExportSettings("hf", step=(6,)), tmp_path / "six")
    assert AutoModelForCausalLM.from_pretrained(out).config.num_experts == 3
    assert "- **steps**: 6 of 10\n- **training tokens**: 768\n" in (out / "README.md").read_text()
    dense = export_run(unfinished, ExportSettings("llama", step=(COPIED_AT,)), tmp_path / "dense")
    assert json.loads((dense / "config.json").read_text())["model_type"] == "llama"
    assert "- **design**: dense, one FFN a layer" in (dense / "README.md").read_text()


def test_a_step_of_a_run_made_again_is_not_taken_for_the_one_that_was_exported(
    unfinished: Path, tmp_path: Path
) -> None:
    settings, run, out = ExportSettings("hf", step=(2,)), tmp_path / "run", tmp_path / "two"
    shutil.copytree(unfinished, run)
    written = export_run(run, settings, out)
    before = (written / "config.json").stat().st_mtime_ns
    assert export_run(run, settings, out) == written
    assert (written / "config.json").stat().st_mtime_ns == before
    state = next(run.glob("checkpoints/step-*2")) / STATE
    recorded = json.loads(state.read_text())
    recorded["sha256"] = dict.fromkeys(recorded["sha256"], "0" * 64)
    state.write_text(json.dumps(recorded))
    with pytest.raises(InputError, match=r"holds another export \(different: source\)"):
        export_run(run, settings, out)


def test_the_last_step_is_the_final_model(unfinished: Path, tmp_path: Path) -> None:
    run, _ = read_run(unfinished / "run.json")
    train(run, read_corpora(run.corpus), tmp_path / "run")
    model, tokenizer = load_checkpoints(tmp_path / "run", [10])
    final, same = load_model(tmp_path / "run")
    assert not model.training
    assert tokenizer.get_vocab() == same.get_vocab()
    assert model.config.eos_token_id == final.config.eos_token_id
    for name, weight in final.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


def test_a_checkpoint_is_exported_where_its_corpus_was_moved(unfinished: Path, tmp_path: Path) -> None:
    run, _ = read_run(unfinished / "run.json")
    corpus = tmp_path / "corpus"
    shutil.copytree(run.corpus[0], corpus)
    train(replace(run, corpus=(corpus,)), read_corpora([corpus]), tmp_path / "run")
    before = load_checkpoints(tmp_path / "run", [10])[0]
    shutil.rmtree(corpus)
    after, _ = load_checkpoints(tmp_path / "run", [10])
    assert after.config.to_dict() == before.config.to_dict()
    shutil.rmtree(tmp_path / "run" / "model")
    with pytest.raises(InputError, match=r"its tokenizer is not where its corpora were.*--resume"):
        load_checkpoints(tmp_path / "run", [10])


def test_another_step_is_refused_with_those_there_are(unfinished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--step 5: no checkpoint .*; there are: 2, 4, 6$"):
        load_checkpoints(unfinished, [5])
    with pytest.raises(InputError, match=r"no run here \(no run\.json\); --step needs the folder of a run"):
        export_run(tmp_path, ExportSettings("hf", step=(5,)), tmp_path / "out")


def test_a_step_is_loaded_on_the_device_asked_for(unfinished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--device cuda:99: this machine has no such device"):
        export_run(unfinished, ExportSettings("hf", step=(2,)), tmp_path / "out", "cuda:99")


def test_a_mean_of_random_routers_keeps_the_last_draws(tmp_path: Path) -> None:
    corpus = prepared(tmp_path / "corpus", length=32).folder
    run = tiny_run("random", checkpoint=CheckpointConfig(every=2, keep=9), corpus=(corpus,))
    train(run, read_corpora(run.corpus), tmp_path / "run")
    mean, last = (load_checkpoints(tmp_path / "run", steps)[0].model.draws for steps in ([8, 10], [10]))
    assert mean == last > 1 << 32


def test_several_steps_are_exported_as_the_mean_of_their_weights(unfinished: Path, tmp_path: Path) -> None:
    run, _ = read_run(unfinished / RUN)
    train(run, read_corpora(run.corpus), tmp_path / "run")
    settings = ExportSettings("hf", step=(6, 8, 10))
    out = export_run(tmp_path / "run", settings, tmp_path / "mean")
    model, _ = load_model(out)
    each = [load_checkpoints(tmp_path / "run", [step])[0].state_dict() for step in settings.step]
    for name, weight in model.state_dict().items():
        expected = torch.stack([weights[name].double() for weights in each]).mean(0)
        assert torch.equal(weight, expected.float()), name
    card = (out / "README.md").read_text()
    assert "- **steps**: 10\n- **weights**: the mean of those after steps 6, 8, 10\n" in card
    assert "loss" not in card
    assert export_run(tmp_path / "run", settings, out) == out
    with pytest.raises(InputError, match=r"holds another export \(different: source, step\)"):
        export_run(tmp_path / "run", ExportSettings("hf", step=(8, 10)), out)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((6, 5), r"--step 5: no checkpoint .*; there are: 2, 4, 6$"),
        ((2, 6), "--step 2,6: the model of step 2 is dense, in the warm-up, .*; give steps after 4$"),
        ((6, 6), "--step 6,6: a step is given twice; give each once"),
    ],
)
def test_what_has_no_mean_is_refused(
    steps: tuple[int, ...], message: str, unfinished: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        export_run(unfinished, ExportSettings("hf", step=steps), tmp_path / "out")
