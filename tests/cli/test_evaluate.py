"""Perplexity of held-out text, and downstream tasks."""

import json
import shutil
from pathlib import Path

import pytest

from cli.calls import WORDS, Made, assert_refused, call
from loriini.train.upcycle import WarmupConfig
from runs import tiny_run, trained


def test_evaluate_prints_and_writes_the_contracts_measures(
    made: Made, heldout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ("--documents", heldout, "--domain-field", "topic")
    ended = call(capsys, "evaluate", made.run, *documents, "--out", tmp_path / "new" / "results.json")
    results = json.loads(ended.out)
    title, head, *table = ended.err.splitlines()
    assert title == "perplexity of held-out text, without the first 16 tokens of each instance"
    assert (ended.code, " ".join(head.split())) == (0, "domain tokens perplexity bits per byte (counted)")
    columns = ("tokens", "perplexity", "bits_per_byte_counted")
    measured = [results[name][topic] for topic in WORDS for name in columns]
    means = [sum(results[name].values()) / len(WORDS) for name in columns[1:]]
    measured += [sum(results["tokens"].values()), *means]
    assert [float(x.replace(",", "")) for line in table for x in line.split()[1:]] == pytest.approx(
        measured, abs=1e-3
    )
    measures = {"perplexity", "perplexity_all", "tokens", "bits_per_byte", "bits_per_byte_counted"}
    assert results.keys() == {*measures, "skip", "routing", "causality", "first_segment", "seconds"}
    assert (results["skip"], results["routing"]) == (16, "training")
    assert all(results[measure].keys() == WORDS.keys() for measure in measures)
    assert (results["causality"], results["first_segment"]) == ("after_first_segment", "self")
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == results
    again = json.loads(call(capsys, "evaluate", made.run / "model", *documents).out)
    assert again | {"seconds": results["seconds"]} == results


def test_documents_of_the_corpus_are_warned_of_while_it_is_there(
    made: Made, heldout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = "".join(made.documents.read_text().splitlines(keepends=True)[:2])
    (tmp_path / "some.jsonl").write_text(heldout.read_text() + known)
    documents = ("--documents", tmp_path / "some.jsonl")
    found = f"warning: 2 of 242 held-out documents are also in the corpus {made.corpus} (some.jsonl:241, "
    assert call(capsys, "evaluate", made.run, made.run / "model", *documents).err.count(found) == 1
    run = Path(shutil.copytree(made.run, tmp_path / "run"))
    settings = json.loads((run / "run.json").read_text())
    for other in (["gone"], [5], 5, "gone", None):
        (run / "run.json").write_text(json.dumps({**settings, "corpus": other}))
        ended = call(capsys, "evaluate", run, *documents)
        assert (ended.code, "warning: " in ended.err) == (0, False)


def test_evaluate_compares_several_runs(
    made: Made, heldout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (made.run, made.run / "model")
    ended = call(capsys, "evaluate", *runs, "--documents", heldout, "--domain-field", "topic")
    first, second = json.loads(ended.out)
    assert [first["run"], second["run"]] == list(map(str, runs))
    assert second["difference"] == {name: {"change": 0, "low": 0, "high": 0} for name in ("all", *WORDS)}
    table, lines = ended.err.splitlines()[: len(WORDS) + 3], ended.err.splitlines()[len(WORDS) + 3 :]
    assert table[1].split() == ["domain", "tokens", *map(str, runs)]
    assert table[-1].split()[0] == "mean"
    assert "over held-out documents (it does not cover the seed" in lines[0]
    assert lines[1:] == [f"  {runs[1]}  {name}: +0.0 % (+0.0 to +0.0 %)" for name in (*WORDS, "all")]


def test_evaluate_runs_downstream_tasks(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lm_eval", reason="the harness is in the extra loriini[tasks]")
    rows = [{"query": f"Question: {i}", "choices": ["the owl", "an awl"], "gold": i % 2} for i in range(4)]
    (tmp_path / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = ("--tasks", "piqa", "--tasks-data", tmp_path, "--limit", 3, "--device", "cpu")
    ended = call(capsys, "evaluate", made.run, *tasks, "--routing", "segment", "--out", tmp_path / "o.json")
    result = json.loads(ended.out)
    assert json.loads((tmp_path / "o.json").read_text()) == result
    assert (ended.code, result["routing"], result.keys()) == (0, "segment", {"routing", "seconds", "tasks"})
    assert result["tasks"]["piqa"].keys() == {"metric", "value", "stderr", "n", "shots", "metrics"}
    ended = call(capsys, "evaluate", made.run, made.run / "model", *tasks)
    first, second = json.loads(ended.out)
    assert [first["run"], second["run"]] == [str(made.run), str(made.run / "model")]
    assert second["tasks"]["piqa"].pop("difference") == {"change": 0, "low": None, "high": None}
    assert first["tasks"] == second["tasks"]
    assert first["routing"] == "prompt"
    (row,) = (line for line in ended.err.splitlines() if line.startswith("piqa  acc_norm"))
    assert row.count(" ± ") == 2
    ended = call(capsys, "evaluate", made.run, made.run / "model", *tasks, "--label", "z")
    assert_refused(ended, "--label z: these models do not route by label; leave it out")


@pytest.mark.parametrize(
    ("design", "training", "evaluation"),
    [
        ("smear", "this design is not causal: a token's experts", "this design is not causal: a token's"),
        ("ec-token", "this design is not causal in training: experts choose", None),
        ("mixtral", None, None),
    ],
)
def test_what_is_not_causal_says_so_once(
    design: str,
    training: str | None,
    evaluation: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def assert_warned(errors: str, words: str | None, of: str = "") -> None:
        assert errors.count("not causal") == (words is not None)
        assert words is None or f"warning: {of}{words}" in errors

    capsys.readouterr()
    run = trained(tiny_run(design, steps=2, warmup=WarmupConfig(dense_share=0)), tmp_path)
    assert_warned(capsys.readouterr().err, training)
    text = tmp_path / "held-out.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(100)))
    ended = call(capsys, "evaluate", run, "--documents", text)
    assert_warned(ended.err, evaluation, f"{run}: ")
    assert json.loads(ended.out)["causality"] == ("none" if evaluation else "strict")
    call(capsys, "analyze", run, "--documents", text)
    assert (run / "report.html").read_text().count("not causal") == (training is not None)
