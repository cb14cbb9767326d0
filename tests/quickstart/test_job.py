"""The main job from documents to report with tiny models: it runs once and resumes exactly."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.calls import assert_refused, call
from loriini.analyze.routes import Routes
from loriini.cli import main
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import load_artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.similarity import lsa
from loriini.data.read.document import Document
from loriini.evaluate.intervals import Difference
from loriini.quickstart import Quickstart, job, run_quickstart
from loriini.quickstart.results import print_table, verdict
from loriini.recipes import SIZES, Size
from loriini.train.config import ModelShape
from loriini.train.records.metrics import METRICS, read_metrics
from runs import after_step, signal_self

STEPS = 12
DOMAINS = ("cooking", "ledger", "<b>code</b>[/b]")
STAGES = ["gather documents", "prepare corpus", "train dense", "train lory", "evaluate and analyze"]


def text(domain: str, rng: np.random.Generator) -> str:
    """A few lines that could be of no other domain."""
    a, b, c = rng.integers(1, 999, 3)
    lines = {
        "cooking": f"Stir {a} grams of flour into {b} of butter, and bake it for {c} minutes until golden.\n",
        "ledger": f"{a:06}.{b % 100:02} EUR | account {c} | debit\n",
        DOMAINS[2]: f"def f_{a}(x, y):\n    return x * {b} + y['<script>'] - {c}\n\n",
    }
    return lines[domain] * int(rng.integers(12, 18))


@pytest.fixture(scope="module", autouse=True)
def smallest() -> Iterator[None]:
    """The quickstart's small size made smaller, and a small encoder and samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "small", Size(ModelShape(32, 48, 2, 2), 384, 20, 4))
        patch.setattr(lsa, "FEATURES", 1 << 10)
        patch.setattr(lsa, "MOST_DIMENSIONS", 16)
        patch.setattr(job, "SAMPLE_TOKENS", 8)
        yield


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("documents") / "mixed.jsonl"
    with open(path, "w") as file:
        for i in range(360):
            record = {"id": f"d{i}", "text": text(DOMAINS[i % 3], rng), "domain": DOMAINS[i % 3]}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture(scope="module")
def out(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished job."""
    folder = tmp_path_factory.mktemp("job") / "out"
    main(arguments(documents, folder))
    return folder


def arguments(documents: Path, out: Path, *more: str) -> list[str]:
    return ["quickstart", "--documents", str(documents), "--out", str(out), "--steps", str(STEPS), *more]


def results(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "results.json").read_text())
    return read


def without_times(out: Path) -> dict[str, Any]:
    return {key: value for key, value in results(out).items() if key != "seconds"}


def test_the_results_have_the_contracts_keys(out: Path) -> None:
    found = results(out)
    keys = {"dense", "lory", "difference", "skip", "parameters", "tokens", "seconds", "order"}
    assert found.keys() == keys
    for name in ("dense", "lory"):
        assert found[name].keys() == {"perplexity", "perplexity_all", "loss"}
        assert found[name]["perplexity"].keys() == found[name]["perplexity_all"].keys() == set(DOMAINS)
    assert found["difference"].keys() == {*DOMAINS, "all"}
    assert all(values.keys() == {"change", "low", "high"} for values in found["difference"].values())
    assert found["parameters"].keys() == {"dense", "lory_total", "lory_active"}
    assert found["tokens"].keys() == {"train", "heldout"}
    assert found["seconds"].keys() == set(STAGES)
    assert found["order"].keys() == {"random", "similar"}


def test_the_results_are_those_of_the_files(out: Path) -> None:
    found = results(out)
    assert found["tokens"]["train"] == STEPS * 4 * 512
    evaluations = [
        json.loads((out / "runs" / name / "evaluation.json").read_text()) for name in ("dense", "lory")
    ]
    assert found["skip"] == evaluations[0]["skip"] == evaluations[1]["skip"] == 128
    assert evaluations[0]["tokens"] == evaluations[1]["tokens"]
    assert found["tokens"]["heldout"] == sum(evaluations[0]["tokens"].values())
    sizes = found["parameters"]
    assert sizes["dense"] < sizes["lory_active"] < sizes["lory_total"]
    assert found["order"]["similar"] > found["order"]["random"] + 0.1
    for name in ("dense", "lory"):
        steps = read_metrics(out / "runs" / name / METRICS)
        assert [m["step"] for m in steps] == list(range(1, STEPS + 1))
        assert found[name]["loss"] == pytest.approx(np.mean([m["loss"] for m in steps]))
        assert all(1 < value < 384 for value in found[name]["perplexity"].values())


def test_a_difference_is_that_of_the_perplexities_and_lies_in_its_interval(out: Path) -> None:
    found = results(out)
    dense, mixture = (found[name]["perplexity"] for name in ("dense", "lory"))
    ratios = {domain: mixture[domain] / dense[domain] for domain in DOMAINS}
    ratios["all"] = np.mean(list(mixture.values())) / np.mean(list(dense.values()))
    for name, difference in found["difference"].items():
        assert difference["change"] == pytest.approx(ratios[name] - 1, abs=1e-6)
        assert difference["low"] < difference["change"] < difference["high"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference(-0.031, -0.042, -0.02), "3.1 % lower, 95 % interval −4.2 to −2.0 %"),
        (Difference(0.031, 0.02, 0.042), "3.1 % higher, 95 % interval +2.0 to +4.2 %"),
        (Difference(0.0004, 0.0002, 0.0006), "no clear difference, 95 % interval +0.0 to +0.1 %"),
        (Difference(-0.031, -0.07, 0.01), "no clear difference, 95 % interval −7.0 to +1.0 %"),
        (
            Difference(-0.031, math.nan, math.nan),
            "no clear difference, 95 % interval unknown (too few instances)",
        ),
    ],
)
def test_the_verdict_claims_no_more_than_the_interval(difference: Difference, words: str) -> None:
    assert verdict(difference) == words


def test_a_model_that_sees_ahead_has_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = {"perplexity": {"a": 9.0}, "skip": 0, "causality": "none"}
    better = Difference(-0.1, -0.2, -0.05)
    print_table({"dense": evaluation, "smear": evaluation}, {"a": better, "all": better}, "smear")
    printed = capsys.readouterr().out
    assert "smear sees later tokens" in printed
    assert "lower" not in printed


def test_no_document_is_on_both_sides(out: Path) -> None:
    counts = [
        load_artifact(out / "corpora" / side / "documents").counts["documents"]
        for side in ("train", "heldout")
    ]
    assert sum(counts) == 360
    assert 360 * 0.03 < counts[1] < 360 * 0.15


def test_the_report_escapes_text(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert "&lt;b&gt;code&lt;/b&gt;" in page
    assert "<b>code</b>" not in page
    assert "['<script>']" not in page
    assert "Who routes where" in page


def test_a_second_call_repeats_nothing(
    documents: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def times() -> dict[Path, int]:
        folders = (out / "corpora", out / "runs")
        return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}

    before, found = times(), results(out)
    ended = call(capsys, *arguments(documents, out))
    assert ended.code == 0
    assert times() == before
    assert results(out) == found  # seconds too
    assert ended.out.endswith(f"{out / 'report.html'}\n")
    assert all(text in ended.out for text in (*DOMAINS, "mean", "95 % interval", "lory relative to dense: "))
    lines = ended.err.splitlines()
    assert lines[0] == f"Everything goes to {out}"
    assert [line for line in lines if line.startswith("stage ")] == [
        f"stage {i} of 5: {name}" + f" (left: {', '.join(STAGES[i:])})" * (i < 5)
        for i, name in enumerate(STAGES, start=1)
    ]


def test_an_evaluation_without_losses_of_instances_is_repeated(documents: Path, out: Path) -> None:
    before = without_times(out)
    path = out / "runs" / "dense" / "evaluation.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in values.items() if name != "instance_losses"}))
    main(arguments(documents, out))
    assert without_times(out) == before
    assert json.loads(path.read_text()) == values


def test_an_interrupted_job_resumes_to_the_same_results(
    documents: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        train = job.train

        def interrupted(run: Any, *others: Any) -> Path:
            if run.name == "lory":
                after_step(patch, 7, signal_self)
            return train(run, *others)

        patch.setattr(job, "train", interrupted)
        ended = call(capsys, *arguments(documents, tmp_path / "job"))
    assert (ended.code, ended.out) == (130, "")
    assert f"saved after step 7 of {STEPS}" in ended.err
    assert not (tmp_path / "job" / "results.json").exists()
    assert call(capsys, *arguments(documents, tmp_path / "job")).code == 0
    assert without_times(tmp_path / "job") == without_times(out)


def test_an_interruption_outside_training_says_how_to_resume(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "prepare_documents", interrupt)
    ended = call(capsys, *arguments(documents, tmp_path / "job"))
    assert ended.code == 130
    assert ended.err.endswith("interrupted; run the same command again to resume\n")


@pytest.mark.parametrize(
    ("more", "changed"),
    [(("--seed", "1"), "seed"), (("--size", "medium", "--design", "aoe"), "design, size")],
)
def test_another_job_in_the_same_folder_is_refused(
    more: tuple[str, ...], changed: str, documents: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"quickstart.json: this folder holds a job with other {changed}; choose another --out"
    assert_refused(call(capsys, *arguments(documents, out, *more)), message)


def test_another_process_in_the_same_folder_is_refused(
    documents: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with folder_lock(out):
        assert_refused(call(capsys, *arguments(documents, out)), f"{out}: another process is at work here")


@pytest.mark.parametrize("file", ["quickstart.json", "stages.json", "runs/dense/evaluation.json"])
def test_a_damaged_file_is_refused(
    file: str, documents: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(out, tmp_path / "job"))
    (folder / file).write_text('{"cut')
    ended = call(capsys, *arguments(documents, folder))
    assert ended.code == 2
    assert f"loriini: {folder / file}: not readable JSON" in ended.err.splitlines()[-1]


def test_label_routing_works_from_documents_to_report(
    documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    main(arguments(documents, folder, "--design", "label"))
    found = results(folder)
    assert found["parameters"].keys() == {"dense", "label_total", "label_active"}
    assert found["dense"]["perplexity"] == found["dense"]["perplexity_all"]  # no token is left out
    assert found["skip"] == 0
    assert found["seconds"].keys() == {*STAGES, "train label"} - {"train lory"}
    run = folder / "runs" / "label"
    names = sorted(DOMAINS)
    assert json.loads((run / "model" / "config.json").read_text())["label_names"] == names
    routes = Routes.load(run / "routes.npz")
    experts = [[names.index(domain) for domain in routes.domains]] * 2
    assert routes.mean_gates.argmax(-1).tolist() == experts
    assert "label" in (folder / "report.html").read_text()

    texts = ("--documents", documents)
    evaluated = json.loads(call(capsys, "evaluate", run, *texts).out)
    assert evaluated["perplexity"].keys() == set(DOMAINS)
    assert call(capsys, "analyze", run, *texts, "--out", tmp_path / "analysis").code == 0
    assert call(capsys, "designs", "--audit", run).out.startswith("declared strict, measured strict")
    for more, code in ((("--label", "ledger"), 0), (("--label", "poems"), 2), ((), 2)):
        written = call(capsys, "generate", run, "--prompt", "Stir", "--max-new-tokens", 2, *more)
        assert written.code == code
    export = ("export", run, "--to", "llama", "--out", tmp_path / "llama")
    assert_refused(call(capsys, *export), "routes by label")
    assert call(capsys, *export, "--label", "ledger").code == 0  # the label's expert alone

    poem = tmp_path / "poem.jsonl"
    poem.write_text('{"id": "sonnet 18", "text": "Shall I compare thee", "domain": "poems"}\n')
    for command in ("evaluate", "analyze"):
        ended = call(capsys, command, run, "--documents", poem)
        assert_refused(ended, "document sonnet 18: its domain 'poems' is not a label to route by")


@pytest.mark.parametrize(
    ("design", "domain", "reason"),
    [
        ("label", "poems", "document sonnet 18: its domain 'poems' is not a label"),
        ("lory", "all", "a domain is called 'all'"),
        ("lory", "poems", "domain 'poems' has instances of .* skipped; give more documents of it"),
    ],
)
def test_local_text_with_a_wrong_domain_is_refused_before_training(
    design: str, domain: str, reason: str, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = job.split_documents([str(documents)], 10**9, 10**9)
    sides["heldout"].append(Document("sonnet 18", "Shall I compare thee", domain))
    monkeypatch.setattr(job, "collect_local_text", lambda: sides)
    with pytest.raises(InputError, match=reason):
        run_quickstart(Quickstart(design=design, steps=2), tmp_path / "job")
    assert not (tmp_path / "job" / "runs").exists()


def test_a_missing_path_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = call(capsys, *arguments(tmp_path / "absent", tmp_path / "job"))
    assert_refused(ended, f"{tmp_path / 'absent'}: no such file or folder; check the path")
    assert not any(tmp_path.iterdir())


def test_a_folder_of_other_things_is_left_alone(
    documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for there, reason in (
        (tmp_path, "exists and is no folder of `loriini quickstart`; choose another --out"),
        (tmp_path / "mine.txt", "is a file; choose another place"),
    ):
        assert_refused(call(capsys, *arguments(documents, there)), f"{there}: {reason}")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_too_little_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "only one"}\n')
    ended = call(capsys, *arguments(few, tmp_path / "job"))
    assert ended.code == 2
    assert "document is left; give more text" in ended.err
