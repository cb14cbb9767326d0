"""The commands on a trained model."""

import json
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from cli.calls import WORDS, Ended, Made, assert_refused, call
from loriini.evaluate.samples import Write
from loriini.train.upcycle import WarmupConfig
from runs import tiny_run, trained


def test_evaluate_prints_and_writes_the_contracts_measures(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ("--documents", made.documents, "--domain-field", "topic")
    ended = call(capsys, "evaluate", made.run, *documents, "--out", tmp_path / "new" / "results.json")
    results = json.loads(ended.out)
    title, head, *table = ended.err.splitlines()
    assert title == "perplexity of held-out text, without the first 16 tokens of each instance"
    assert (ended.code, head.split()) == (0, ["domain", "tokens", "perplexity", "bits", "per", "byte"])
    measured = [results[name][topic] for topic in WORDS for name in ("tokens", "perplexity", "bits_per_byte")]
    assert [float(x.replace(",", "")) for line in table for x in line.split()[1:]] == pytest.approx(
        measured, abs=1e-3
    )
    measures = {"perplexity", "perplexity_all", "bits_per_byte", "tokens"}
    assert results.keys() == {*measures, "skip", "routing", "causality"}
    assert (results["skip"], results["routing"]) == (16, "training")
    assert all(results[measure].keys() == WORDS.keys() for measure in measures)
    assert results["causality"] == "after_first_segment"
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == results
    assert json.loads(call(capsys, "evaluate", made.run / "model", *documents).out) == results


def test_evaluate_compares_several_runs(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    runs = (made.run, made.run / "model")
    ended = call(capsys, "evaluate", *runs, "--documents", made.documents, "--domain-field", "topic")
    first, second = json.loads(ended.out)
    assert [first["run"], second["run"]] == list(map(str, runs))
    assert second["difference"] == {name: {"change": 0, "low": 0, "high": 0} for name in ("all", *WORDS)}
    table, lines = ended.err.splitlines()[: len(WORDS) + 2], ended.err.splitlines()[len(WORDS) + 2 :]
    assert table[1].split() == ["domain", "tokens", *map(str, runs)]
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
    assert (ended.code, result["routing"]) == (0, "segment")
    assert result["tasks"]["piqa"].keys() == {"metric", "value", "stderr", "n", "shots", "metrics"}
    ended = call(capsys, "evaluate", made.run, made.run / "model", *tasks)
    first, second = json.loads(ended.out)
    assert [first["run"], second["run"]] == [str(made.run), str(made.run / "model")]
    assert first["tasks"] == second["tasks"]
    assert first["routing"] == "prompt"
    (row,) = (line for line in ended.err.splitlines() if line.startswith("piqa  acc_norm"))
    assert row.count(" ± ") == 2
    ended = call(capsys, "evaluate", made.run, made.run / "model", *tasks, "--label", "z")
    assert_refused(ended, "--label z: these models do not route by label; leave it out")


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--documents"),
        ("analyze", "--documents"),
        ("generate", "--prompt"),
        ("export", "--to", "llama", "--out", "unwritten", "--prompt"),
    ],
    ids=lambda command: command[0],
)
def test_a_device_that_is_not_there_is_refused(
    command: tuple[str, ...], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    ended = call(capsys, name, made.run, *options, made.documents, "--device", "cuda:99")
    assert_refused(ended, "--device cuda:99: this machine has no such device; choose cpu")


def test_generate_prints_the_prompt_and_what_follows(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = ("generate", made.run, "--prompt", "the owl", "--max-new-tokens", 8)
    for more in ((), ("--greedy",), ("--routing", "segment"), ("--seed", 3, "--device", "cpu")):
        ended = call(capsys, *prompt, *more)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.startswith("the owl")
        assert call(capsys, *prompt, *more) == ended


def test_a_text_that_outgrows_the_context_is_warned_of(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, "generate", made.run, "--prompt", "the owl", "--max-new-tokens", 64)
    assert ended.code == 0
    assert re.fullmatch(r"warning: --max-new-tokens 64: the context has room for \d+; beyond .*\n", ended.err)


def test_generate_continues_each_line_until_the_input_ends(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--max-new-tokens", 4, "--top-p", 0.9, "--seed", 2)
    lines = ("the owl", "", "an awl")
    alone = [call(capsys, "generate", made.run, "--prompt", line, *how).out for line in lines]
    monkeypatch.setattr("sys.stdin", StringIO("\n".join(lines)))
    assert call(capsys, "generate", made.run, "--interactive", *how) == Ended(0, "".join(alone), "")
    monkeypatch.setattr("sys.stdin", StringIO("the owl"))
    assert call(capsys, "generate", made.run, "--prompt", "-", *how).out == alone[0]


def test_an_interrupt_ends_one_continuation(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(model: object, tokenizer: object, prompt: str, how: object, write: Write) -> None:
        write(" and")
        if prompt == "one":
            raise KeyboardInterrupt

    monkeypatch.setattr("loriini.evaluate.samples.continue_text", interrupted)
    monkeypatch.setattr("sys.stdin", StringIO("\n".join(("one", "the owl " * 99, "two"))))
    ended = call(capsys, "generate", made.run, "--interactive")
    assert (ended.code, ended.out) == (0, "one and\ntwo and\n")
    assert re.fullmatch(r"warning: the prompt has \d+ tokens, the context 64; shorten it\n", ended.err)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give --prompt TEXT or --interactive, one of them"),
        (("--prompt", "a", "--interactive"), "give --prompt TEXT or --interactive, one of them"),
        (("--prompt", "a", "--temperature", 0), "--temperature 0.0: give more than 0, or --greedy"),
        (("--prompt", "the owl " * 99), "tokens, the context 64; shorten it"),
        (
            ("--prompt", "a", "--greedy", "--top-p", 0.5),
            "--top-p: is for sampling; leave it out, or --greedy",
        ),
        (("--prompt", "a", "--greedy", "--seed", 0), "--seed: is for sampling; leave it out, or --greedy"),
        (("--prompt", "a", "--label", "z"), "--label z: this model does not route by label; leave it out"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    options: tuple[object, ...], words: str, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(call(capsys, "generate", made.run, *options), words)


def test_lens_writes_a_page(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "lens", made.run, "--prompt", "the owl is number 3")
    assert ended == Ended(0, f"{made.run / 'lens.html'}\n", "")
    (tmp_path / "text.txt").write_text("the owl is number 3")
    page = call(
        capsys, "lens", made.run, "--text", tmp_path / "text.txt", "--out", tmp_path / "new" / "a.html"
    )
    assert page.out == f"{tmp_path / 'new' / 'a.html'}\n"
    pages = [(path).read_text() for path in (made.run / "lens.html", tmp_path / "new" / "a.html")]
    assert pages[0] == pages[1]
    for options, words in (
        ((), "give --text FILE or --prompt TEXT, one of them"),
        (
            ("--text", tmp_path / "none.txt"),
            "none.txt: not a readable text file (No such file or directory); ",
        ),
        (("--prompt", "a", "--out", tmp_path), "is a folder; give the name of a file"),
        (("--prompt", "a", "--label", "z"), "--label z: this model does not route by label; leave it out"),
    ):
        assert_refused(call(capsys, "lens", made.run, *options), words)


def test_analyze_writes_routes_and_a_report(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = ("--documents", made.documents, "--domain-field", "topic")
    ended = call(capsys, "analyze", made.run, *documents, "--out", tmp_path / "new")
    assert ended == Ended(0, f"{tmp_path / 'new' / 'report.html'}\n", "")
    page = (tmp_path / "new" / "report.html").read_text()
    assert all(part in page for part in ("Who routes where", "birds", "tools"))
    with np.load(tmp_path / "new" / "routes.npz") as routes:
        assert routes["domains"].tolist() == ["birds", "tools"]
        np.testing.assert_allclose(routes["mean_gates"].sum(-1), 1, rtol=1e-5)
    fields = ("--domain-field", "topic", "--text-field", "topic", "--per-document", "--device", "cpu")
    ended = call(capsys, "analyze", made.run, "--documents", made.documents, *fields)
    assert ended.out == f"{made.run / 'report.html'}\n"
    routes = json.loads((made.run / "routes.json").read_text())
    assert routes["field"] == "topic"
    assert routes["sequences"] == {"birds": 120, "tools": 120}  # every document by itself


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
    def assert_warned(errors: str, words: str | None) -> None:
        assert errors.count("not causal") == (words is not None)
        assert words is None or f"warning: {words}" in errors

    capsys.readouterr()
    run = trained(tiny_run(design, steps=2, warmup=WarmupConfig(dense_share=0)), tmp_path)
    assert_warned(capsys.readouterr().err, training)
    text = tmp_path / "held-out.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(100)))
    ended = call(capsys, "evaluate", run, "--documents", text)
    assert_warned(ended.err, evaluation)
    assert json.loads(ended.out)["causality"] == ("none" if evaluation else "strict")
    call(capsys, "analyze", run, "--documents", text)
    assert (run / "report.html").read_text().count("not causal") == (evaluation is not None)


def test_a_dense_model_has_no_routes_to_analyze(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train: Sequence[object] = ("train", "tiny-dense", "--out", tmp_path / "dense", "--corpus", made.corpus)
    assert call(capsys, *train, "--steps", 1, "--length", 64).code == 0
    ended = call(capsys, "analyze", tmp_path / "dense", "--documents", made.documents)
    assert_refused(ended, "dense: a dense model, so there is nothing to route")
