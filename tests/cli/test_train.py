"""Training a recipe, and resuming a run."""

import json
import shutil
from pathlib import Path

import pytest

from cli.calls import TRAIN, Ended, Made, assert_refused, call
from runs import metrics


def test_train_leaves_a_finished_run_as_it_is_and_refuses_another(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = metrics(made.run)
    assert [m["step"] for m in steps] == list(range(1, 25))
    assert all({"step", "loss", "tokens"} <= m.keys() for m in steps)
    again = ("train", *TRAIN, "tiny-lory", "--out", made.run, "--corpus", made.corpus)
    left = Ended(0, f"{made.run / 'model'}\n", f"{made.run}: finished before, so nothing is trained\n")
    assert call(capsys, *again) == left
    assert call(capsys, "train", "--resume", made.run, "--guard.max_skips", 3) == left
    assert_refused(call(capsys, *again, "--seed", "1"), "run.json", "(different: seed)")
    assert_refused(call(capsys, "train", "--resume", made.run, "--steps", 9), "steps")
    assert metrics(made.run) == steps


def test_a_finished_run_needs_its_corpus_no_more(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(made.run, tmp_path / "run"))
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "corpus": ["gone"]}))
    assert call(capsys, "train", "--resume", run).out == f"{run / 'model'}\n"
    shutil.rmtree(run / "model")
    assert_refused(call(capsys, "train", "--resume", run), "gone: no finished corpus here")
    assert call(capsys, "train", "--resume", run, "--corpus", made.corpus).code == 0


def test_a_run_measures_itself_and_stops_in_time(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "tiny-lory", "--out", tmp_path, "--corpus", made.corpus, "--heldout", made.documents)
    asked = ("--evaluate.every", 10)
    stopped = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 1e-9)
    assert (stopped.code, stopped.out) == (0, "")
    assert "saved after step 1 of 24" in stopped.err
    assert f"held-out documents are also in the corpus {made.corpus}" in stopped.err
    ended = call(capsys, *train, *asked, *TRAIN, "--max-minutes", 60)
    assert (ended.code, ended.out) == (0, f"{tmp_path / 'model'}\n")
    assert "tiny-lory: resumed after step 1 of 24\n" in ended.err
    evaluated = [json.loads(line) for line in (tmp_path / "evaluation.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in evaluated] == [10, 20, 24]
    assert f"held-out perplexity {evaluated[-1]['mean_perplexity']:.2f}" in ended.err
