"""Training a recipe, and resuming a run."""

import json
import shutil
from pathlib import Path

from cli.calls import TRAIN, Captured, Ended, Made, assert_refused, call


def test_a_finished_run_needs_its_corpus_no_more(made: Made, tmp_path: Path, capsys: Captured) -> None:
    run = Path(shutil.copytree(made.run, tmp_path / "run"))
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "corpus": ["gone"]}))
    left = Ended(0, f"{run / 'model'}\n", f"{run}: finished before, so nothing is trained\n")
    assert call(capsys, "train", "--resume", run) == left
    shutil.rmtree(run / "model")
    assert_refused(call(capsys, "train", "--resume", run), "gone: no finished corpus here")
    assert call(capsys, "train", "--resume", run, "--corpus", made.corpus).code == 0


def test_a_run_measures_itself_and_stops_in_time(made: Made, tmp_path: Path, capsys: Captured) -> None:
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
