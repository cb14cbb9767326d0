"""From a recipe's name to a finished run, and from a run's folder on."""

import io
import json
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from loriini.cli import main
from loriini.common.errors import InputError, Unfinished
from loriini.data.read.document import Document
from loriini.train import corpora
from loriini.train.config import read_run
from loriini.train.launch import resume, train_recipe
from runs import after_step, metrics, prepared, signal_self
from together import in_one_group, job

SMALL = ["--steps", "4", "--batch_size", "2", "--length", "32", "--routing.segment_length", "8"]
MEASURED = ["--evaluate.every", "2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums").folder


@pytest.fixture(scope="module")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heldout") / "web.jsonl"
    path.write_text(json.dumps({"text": "three times three is nine, they say. " * 20}) + "\n")
    return path


def results(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]


def test_a_tiny_recipe_makes_its_corpus_whatever_the_runs_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "standard_library", little_text)
    file, other = tmp_path / "mine.toml", tmp_path / "tiny-other.toml"
    file.write_text('recipe = "tiny-lory"\nname = "mine"\n')
    other.write_text('recipe = "0.3b-dense"\nname = "tiny-lory"\n')
    main(["train", "tiny-dense", "--name", "mine", "--out", str(tmp_path / "named"), *SMALL])
    train_recipe(str(file), tmp_path / "of a file", [], SMALL)
    assert [read_run(tmp_path / out / "run.json")[0].name for out in ("named", "of a file")] == ["mine"] * 2
    for large, *name in (["0.3b-dense", "--name", "tiny-x"], [str(other)]):
        with pytest.raises(InputError, match="needs a corpus"):
            train_recipe(large, tmp_path / "large", [], [*name, *SMALL])


def test_a_folder_of_something_else_is_refused(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "slurm-7.out").touch()  # of the job itself
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds notes\.txt, but no run; choose another --out"):
        train_recipe("tiny-dense", tmp_path, [corpus], SMALL)
    (tmp_path / "notes.txt").unlink()
    assert train_recipe("tiny-dense", tmp_path, [corpus], SMALL) == tmp_path / "model"


def test_a_recipe_trains_on_a_corpus_and_resumes_from_its_folder_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_recipe("tiny-lory", tmp_path / "whole", [corpus], SMALL)
    with monkeypatch.context() as patch:
        after_step(patch, 2, signal_self)
        with pytest.raises(KeyboardInterrupt):
            train_recipe("tiny-lory", tmp_path / "run", [corpus], SMALL)
    monkeypatch.chdir(tmp_path)
    assert resume(Path("run")) == Path("run") / "model"
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("run", "whole")]
    assert weights[0] == weights[1]
    assert resume(tmp_path / "whole", overrides=["--parallel.shard", "1"]) == whole
    for message, overrides in {
        "a resumed run keeps its seed; leave the override out": "--seed 7",
        r"its optimizer\.betas, optimizer\.warmup; leave": "--optimizer.betas 0.9,0.9 --optimizer.warmup 0.5",
        r"--micro_batch_size auto: is for new runs, and .* has a value; give": "--micro_batch_size auto",
    }.items():
        with pytest.raises(InputError, match=message):
            resume(tmp_path / "whole", overrides=overrides.split())


def test_what_is_chosen_is_recorded_and_kept(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, auto = tmp_path / "run", ["--steps", "2", "--batch_size", "4", "--length", "32", *SMALL[-2:]]
    auto += ["--micro_batch_size", "auto"]
    sizes = [2, 4]
    monkeypatch.setattr(
        "loriini.train.preflight.choose", lambda run, *_: (run.fill_auto(sizes.pop(0), True), 1e9)
    )
    train_recipe("tiny-lory", out, [corpus], auto)
    recorded = read_run(out / "run.json")[0]
    assert (recorded.micro_batch_size, recorded.model.recompute_merge) == (2, True)
    here = recorded.precision == "bf16"
    monkeypatch.setattr("loriini.common.hardware.has_bf16", lambda device: not here)  # on another machine
    train_recipe("tiny-lory", out, [corpus], auto)  # nothing is chosen again
    assert sizes == [4]
    assert read_run(out / "run.json")[0] == recorded


def test_corpora_and_held_out_inputs_of_a_file_are_found_from_any_folder(
    corpus: Path, heldout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flawed = tmp_path / "flawed.jsonl"
    flawed.write_text(heldout.read_text() + "{\n")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tiny.toml"
    file.write_text(f'recipe = "tiny-dense"\ncorpus = ["{os.path.relpath(corpus)}"]\n')
    run = (str(file), tmp_path / "run", [], [*SMALL, "--steps", "1"])
    with pytest.raises(InputError, match="--on-error: there is no --heldout"):
        train_recipe(*run, on_error="skip")
    inputs = ["wiki=flawed.jsonl", f"file://{heldout}"]
    with pytest.raises(InputError, match=r"flawed\.jsonl:2: not valid JSON.*pass --on-error skip"):
        train_recipe(*run, heldout=inputs)
    train_recipe(*run, heldout=inputs, on_error="skip")
    assert results(tmp_path / "run")[0]["perplexity"].keys() == {"web", "wiki"}
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert settings["evaluate"]["heldout"] == [f"wiki={flawed}", str(heldout)]
    (tmp_path / "run" / "model").rename(tmp_path / "elsewhere")  # measured again
    monkeypatch.chdir("/")
    resume(tmp_path / "run")


def test_a_run_whose_text_was_moved_is_resumed(corpus: Path, heldout: Path, tmp_path: Path) -> None:
    was, now = tmp_path / "was", tmp_path / "now"
    shutil.copytree(corpus, was / "corpus")
    shutil.copy(heldout, was)
    out, name = tmp_path / "run", heldout.name
    with pytest.raises(Unfinished):
        train_recipe("tiny-dense", out, [was / "corpus"], SMALL, heldout=[str(was / name)], deadline=0)
    was.rename(now)
    with pytest.raises(InputError, match="was"):
        resume(out)
    with pytest.raises(InputError, match="was"):
        resume(out, corpora=[now / "corpus"])
    (now / "other.jsonl").write_text(heldout.read_text().replace("three", "four"))
    with pytest.raises(InputError, match=r"different: heldout_digest"):
        resume(out, corpora=[now / "corpus"], heldout=[f"web={now / 'other.jsonl'}"])
    resume(out, corpora=[now / "corpus"], heldout=[str(now / name)])
    assert [entry["step"] for entry in metrics(out)] == [1, 2, 3, 4]
    recorded = read_run(out / "run.json")[0]
    assert (recorded.corpus, recorded.evaluate.heldout) == ((now / "corpus",), (str(now / name),))


def little_text() -> list[Document]:
    return [Document(f"d{i}", f"def f{i}(x):\n    return x + {i}\n" * 12, "python") for i in range(60)]


def train_from_the_command_line(out: Path, *more: str) -> tuple[int, str]:
    """What torchrun starts; its process and what it prints."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(corpora, "standard_library", little_text)
        main(["train", "tiny-lory", "--out", str(out), *SMALL, *MEASURED, "--precision", "bf16", *more])
    return os.getpid(), printed.getvalue()


def test_several_processes_make_one_corpus_and_one_run_measured_once(tmp_path: Path, heldout: Path) -> None:
    out, options = tmp_path / "run", ("--heldout", str(heldout), "--parallel.experts", "2")
    first, second = job(2, in_one_group, [(train_from_the_command_line, out, *options)])
    (pid, printed), (other_pid, nothing) = first[0], second[0]
    assert pid != other_pid
    assert (printed, nothing) == (f"{out / 'model'}\n", "")
    assert [m["step"] for m in metrics(out)] == [1, 2, 3, 4]
    assert [entry["step"] for entry in results(out)] == [2, 4]
    settings = json.loads((out / "run.json").read_text())
    assert settings["corpus"] == [str(tmp_path / "tiny-corpus-32")]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "tiny-corpus-32"}


@pytest.mark.parametrize(
    ("text", "overrides", "named"),
    [
        ("two", [], "--evaluate.skip"),
        ("three times three is nine, they say. " * 20, ["--evaluate.skip", "999"], "--evaluate.skip"),
    ],
)
def test_held_out_text_that_cannot_be_measured_is_refused_before_any_work(
    text: str, overrides: list[str], named: str, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "web.jsonl"
    path.write_text(json.dumps({"text": text}) + "\n")
    with pytest.raises(InputError, match=named):
        train_recipe("tiny-lory", tmp_path / "run", [corpus], [*SMALL, *overrides], heldout=[str(path)])
    assert not (tmp_path / "run").exists()
