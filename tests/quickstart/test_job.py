"""The main job from documents to report with tiny models: it runs once and resumes exactly."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.calls import Captured, assert_refused, call
from compare.conftest import all_trained_here
from loriini.analyze.routes import Routes
from loriini.cli import main
from loriini.common.errors import InputError
from loriini.compare.running import available_cores
from loriini.compare.trainings import Training
from loriini.data.jobs.artifact import load_artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.read.document import Document
from loriini.quickstart import job
from loriini.quickstart.job import run_quickstart
from loriini.quickstart.settings import QuickstartSettings
from loriini.train.records.metrics import METRICS, read_records
from quickstart.conftest import DOMAINS, SECTIONS, STEPS, arguments
from reports import Page
from runs import after_step, interrupt, signal_self

STAGES = ["gather documents", "prepare corpus", "train dense and lory", "evaluate and analyze"]


def results(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "results.json").read_text())
    return read


def without_times(out: Path) -> dict[str, Any]:
    return {key: value for key, value in results(out).items() if key != "seconds"}


def test_the_results_have_these_keys(out: Path) -> None:
    found = results(out)
    keys = {"dense", "lory", "difference", "skip", "contexts", "parameters", "tokens", "seconds", "order"}
    assert found.keys() == keys
    for name in ("dense", "lory"):
        assert found[name].keys() == {"perplexity", "perplexity_all", "loss"}
        assert found[name]["perplexity"].keys() == found[name]["perplexity_all"].keys() == set(DOMAINS)
    assert found["difference"].keys() == {*DOMAINS, "all"}
    for name, values in found["difference"].items():
        dense, mixture = (
            np.mean([x for domain, x in found[model]["perplexity"].items() if name in (domain, "all")])
            for model in ("dense", "lory")
        )
        assert values["change"] == pytest.approx(mixture / dense - 1, abs=1e-6)
        assert values["low"] < values["change"] < values["high"]
    assert found["parameters"].keys() == {"dense", "lory_total", "lory_active"}
    assert found["tokens"].keys() == {"train", "heldout"}
    assert found["seconds"].keys() == set(STAGES)
    assert found["order"].keys() == {"random", "similar"}


def test_the_results_are_those_of_the_files(out: Path) -> None:
    found = results(out)
    assert found["tokens"]["train"] == STEPS * 4 * 512
    assert found["skip"] == 128
    sizes = found["parameters"]
    assert sizes["dense"] < sizes["lory_active"] < sizes["lory_total"]
    assert found["order"]["similar"] > found["order"]["random"] + 0.1
    for name in ("dense", "lory"):
        steps = read_records(out / "runs" / name / METRICS)
        assert [m["step"] for m in steps] == list(range(1, STEPS + 1))
        assert found[name]["loss"] == steps[-1]["loss"]
        assert all(1 < value < 384 for value in found[name]["perplexity"].values())


def test_no_document_is_on_both_sides(out: Path) -> None:
    train = load_artifact(out / "corpus" / "documents").counts["documents"]
    heldout = len((out / "documents" / "heldout.jsonl").read_text().splitlines())
    assert train + heldout == 360
    assert 360 * 0.03 < heldout < 360 * 0.15


def test_the_page_escapes_the_texts(out: Path) -> None:
    page = (out / "report.html").read_text()
    assert f"jobs {min(2, available_cores())}, threads" in page  # both models side by side
    assert "&lt;b&gt;code&lt;/b&gt;" in page
    assert "<b>code</b>" not in page
    assert "['<script>']" not in page
    assert Page(page).headings[1:] == SECTIONS


def test_a_second_call_repeats_nothing(documents: Path, out: Path, capsys: Captured) -> None:
    def times() -> dict[Path, int]:
        folders = (out / "documents", out / "corpus", out / "runs", out / "evaluations")
        return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}

    before, found = times(), results(out)
    ended = call(capsys, *arguments(documents, out))
    assert ended.code == 0
    assert times() == before
    assert results(out) == found  # seconds too
    assert ended.out.endswith(f"{out / 'report.html'}\n")
    assert all(text in ended.out for text in (*DOMAINS, "mean", "95 % interval"))
    lines = ended.err.splitlines()
    assert lines[0] == f"Everything goes to {out}"
    assert [line for line in lines if line.startswith("stage ")] == [
        f"stage {i}/4: {name}" for i, name in enumerate(STAGES, start=1)
    ]


def test_an_interrupted_job_resumes_to_the_same_results(
    documents: Path, out: Path, tmp_path: Path, capsys: Captured
) -> None:
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(trainings: Sequence[Training], jobs: int) -> dict[Path, str]:
            all_trained_here(trainings[:1])
            after_step(patch, 7, signal_self)
            return all_trained_here(trainings[1:])

        patch.setattr(job, "train_all", interrupted)
        ended = call(capsys, *arguments(documents, tmp_path / "job"))
    assert (ended.code, ended.out) == (130, "")
    assert f"saved after step 7 of {STEPS}" in ended.err
    assert not (tmp_path / "job" / "results.json").exists()
    assert call(capsys, *arguments(documents, tmp_path / "job")).code == 0
    assert without_times(tmp_path / "job") == without_times(out)


@pytest.mark.parametrize(
    ("more", "changed"), [(("--seed", "1"), "seed"), (("--size", "medium", "--design", "aoe"), "design")]
)
def test_another_job_in_the_same_folder_is_refused(
    more: tuple[str, ...], changed: str, documents: Path, out: Path, capsys: Captured
) -> None:
    assert_refused(call(capsys, *arguments(documents, out, *more)), f"a job with other {changed}")


def test_other_text_in_the_same_files_is_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "prepare_documents", interrupt)
    documents, out = tmp_path / "texts.jsonl", tmp_path / "out"
    for count, stops in ((400, KeyboardInterrupt), (401, InputError)):
        documents.write_text("".join(f'{{"text": "a text of number {i}"}}\n' for i in range(count)))
        with pytest.raises(stops):
            run_quickstart(QuickstartSettings(documents=(str(documents),)), out)


def test_another_process_in_the_same_folder_is_refused(documents: Path, out: Path, capsys: Captured) -> None:
    with folder_lock(out):
        assert_refused(call(capsys, *arguments(documents, out)), str(out))


def test_the_memory_of_a_stage_is_that_of_its_trainings_too(tmp_path: Path) -> None:
    (tmp_path / "runs" / "dense").mkdir(parents=True)
    (tmp_path / "runs" / "dense" / METRICS).write_text(f'{{"step": 1, "peak_memory_bytes": {1 << 50}}}\n')
    stage = job.Stages(tmp_path, ("train",))
    with stage("train"):
        pass
    assert stage.costs()["train"]["peak_memory_bytes"] == 1 << 50


@pytest.mark.parametrize("file", ["quickstart.json", "samples.json"])
def test_a_damaged_file_is_refused(
    file: str, documents: Path, out: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = Path(shutil.copytree(out, tmp_path / "job"))
    (folder / file).write_text('{"cut')
    ended = call(capsys, *arguments(documents, folder))
    assert ended.code == 2
    assert f"loriini: {folder / file}: not readable JSON" in ended.err.splitlines()[-1]


def test_a_training_that_diverged_is_named_with_a_remedy(
    documents: Path, out: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = Path(shutil.copytree(out, tmp_path / "job"))
    run = folder / "runs" / "lory"
    shutil.rmtree(run / "model")
    skipped = [{**step, "skipped": True} for step in read_records(run / METRICS)]
    (run / METRICS).write_text("".join(f"{json.dumps(step)}\n" for step in skipped))
    ended = call(capsys, *arguments(documents, folder))
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"loriini: {run}: steps 3 to 12 were skipped")


def test_label_routing_works_from_documents_to_report(
    documents: Path, out: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a finished job's corpus and dense model."""
    monkeypatch.setattr(job, "train_all", all_trained_here)
    made = shutil.ignore_patterns("results.json", "samples.json", "stages.json", "lory")
    folder = Path(shutil.copytree(out, tmp_path / "job", ignore=made))
    settings = json.loads((folder / "quickstart.json").read_text())
    (folder / "quickstart.json").write_text(json.dumps({**settings, "design": "label"}))
    main(arguments(documents, folder, "--design", "label"))
    found = results(folder)
    assert found["parameters"].keys() == {"dense", "label_total", "label_active"}
    assert found["dense"]["perplexity"] == found["dense"]["perplexity_all"]  # no token is left out
    assert found["skip"] == 0
    run = folder / "runs" / "label"
    names = sorted(DOMAINS)
    assert json.loads((run / "model" / "config.json").read_text())["label_names"] == names
    routes = Routes.load(run / "routes.npz")
    experts = [[names.index(domain) for domain in routes.domains]] * 2
    assert routes.mean_gates.argmax(-1).tolist() == experts

    texts = ("--documents", folder / "documents" / "heldout.jsonl")
    evaluated = json.loads(call(capsys, "evaluate", run, *texts).out)
    assert evaluated["perplexity"].keys() == set(DOMAINS)
    assert call(capsys, "analyze", run, *texts, "--out", tmp_path / "analysis").code == 0
    label = ("--label", "ledger")
    assert call(capsys, "generate", run, "--prompt", "Stir", "--max-new-tokens", 2, *label).code == 0
    assert call(capsys, "export", run, "--to", "llama", "--out", tmp_path / "llama", *label).code == 0

    poem = tmp_path / "poem.jsonl"
    poem.write_text('{"id": "sonnet 18", "text": "Shall I compare thee", "domain": "poems"}\n')
    assert_refused(call(capsys, "analyze", run, "--documents", poem), "document sonnet 18")


def test_local_text_with_a_wrong_domain_is_refused_before_training(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = job.split_documents([str(documents)], 10**9, 10**9)
    sides["heldout"].append(Document("sonnet 18", "Shall I compare thee", "poems"))
    monkeypatch.setattr(job, "collect_local_text", lambda: sides)
    with pytest.raises(InputError, match="sonnet 18"):
        run_quickstart(QuickstartSettings(design="label", steps=2), tmp_path / "job")
    assert not (tmp_path / "job" / "runs").exists()


def test_a_place_that_is_not_the_jobs_is_left_alone(
    documents: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert_refused(call(capsys, *arguments(tmp_path / "absent", tmp_path / "job")), "absent: no such file")
    assert not any(tmp_path.iterdir())
    (tmp_path / "mine.txt").write_text("mine")
    for there in (tmp_path, tmp_path / "mine.txt"):
        assert_refused(call(capsys, *arguments(documents, there)), str(there))
    assert {path.name for path in tmp_path.iterdir()} <= {"mine.txt", ".lock"}
