"""The settings of the main job, and whose job a folder holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.calls import call
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import load_artifact
from loriini.data.read.document import Document
from loriini.quickstart import Quickstart, job, run_quickstart


def write_lines(path: Path, count: int) -> None:
    path.write_text("".join(f'{{"text": "a text of number {i}"}}\n' for i in range(count)))


def test_a_flawed_record_is_skipped_when_asked_in_the_folder_of_a_job_that_stopped_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flawed = tmp_path / "flawed.jsonl"
    write_lines(flawed, 360)
    with open(flawed, "a") as file:
        file.write("{\n")
    asked = ("quickstart", "--documents", flawed, "--out", tmp_path / "job")
    stopped = call(capsys, *asked)
    assert stopped.code == 2
    assert f"{flawed}:361: not valid JSON" in stopped.err
    assert stopped.err.endswith("pass --on-error skip to count and skip it\n")
    gathered = list[Document]()

    def gather(folder: Path, read: Any, *others: Any) -> None:
        gathered.extend(read(None))
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "write_documents", gather)
    ended = call(capsys, *asked, "--on-error", "skip")
    assert ended.code == 130
    assert "warning: 1 left out: not valid JSON" in ended.err
    assert gathered


def test_a_job_that_read_nothing_leaves_the_folder_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, documents, out = tmp_path / "empty", tmp_path / "text.txt", tmp_path / "out"
    empty.mkdir()
    documents.write_text("some words of text\n")
    with pytest.raises(InputError):
        run_quickstart(Quickstart(documents=(str(empty),)), out)

    def started(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "read_sides", started)
    with pytest.raises(KeyboardInterrupt):
        run_quickstart(Quickstart(documents=(str(documents),), steps=3), out)
    assert json.loads((out / "quickstart.json").read_text())["steps"] == 3


def test_other_text_in_the_same_files_is_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "prepare_documents", interrupt)
    documents, out = tmp_path / "texts.jsonl", tmp_path / "out"
    write_lines(documents, 400)
    with pytest.raises(KeyboardInterrupt):
        run_quickstart(Quickstart(documents=(str(documents),)), out)
    write_lines(documents, 401)
    with pytest.raises(InputError, match="a job with other contents of documents; choose another --out"):
        run_quickstart(Quickstart(documents=(str(documents),)), out)


def test_the_fields_of_records_are_named(tmp_path: Path) -> None:
    records = [{"body": f"number {i} of many", "kind": "odd" if i % 2 else "even"} for i in range(200)]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(InputError, match="no text"):
        job.read_sides(Quickstart((str(path),)))
    sides = job.read_sides(Quickstart((str(path),), text_field="body", domain_field="kind"))
    assert {document.domain for side in sides.values() for document in side} == {"odd", "even"}
    with pytest.raises(InputError, match="--text-field: there are no --documents to read"):
        Quickstart(text_field="body")


@pytest.mark.parametrize("wrong", [{"seed": 2**31}, {"seed": -1}, {"steps": 0}, {"size": "huge"}])
def test_wrong_settings_are_refused_before_the_folder_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Quickstart(**wrong)


def test_text_that_was_held_out_before_an_interruption_is_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "lines.jsonl", 360)
    sides = job.split_documents([str(tmp_path / "lines.jsonl")], 10**9, 10**9)
    heldout, moved = sides["heldout"], sides["train"][0]

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    for text, until in (
        ({**sides, "heldout": [*heldout, moved]}, "prepare_documents"),
        (sides, "check_labels"),  # of this machine, where packages were installed since
    ):
        monkeypatch.setattr(job, "collect_local_text", lambda text=text: text)
        with monkeypatch.context() as patch:
            patch.setattr(job, until, stop)
            with pytest.raises(KeyboardInterrupt):
                job.run_quickstart(Quickstart(), tmp_path / "job")
    stored = load_artifact(tmp_path / "job/corpora/train/documents")
    assert stored.counts["documents"] == len(sides["train"]) - 1
