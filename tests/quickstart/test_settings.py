"""The settings of the main job, and the documents that it reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.calls import Captured, call
from loriini.common.errors import InputError
from loriini.quickstart import job
from loriini.quickstart.settings import QuickstartSettings
from runs import interrupt


def write_lines(path: Path, count: int) -> None:
    path.write_text("".join(f'{{"text": "a text of number {i}"}}\n' for i in range(count)))


def test_a_flawed_record_is_skipped_when_asked_in_the_folder_of_a_job_that_stopped_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    flawed, out = tmp_path / "flawed.jsonl", tmp_path / "job"
    write_lines(flawed, 360)
    with open(flawed, "a") as file:
        file.write("{\n")
    stopped = call(capsys, "quickstart", "--documents", flawed, "--out", out)
    assert stopped.code == 2
    assert f"{flawed}:361" in stopped.err

    monkeypatch.setattr(job, "prepare_documents", interrupt)
    ended = call(capsys, "quickstart", "--documents", flawed, "--out", out, "--on-error", "skip")
    assert ended.code == 130
    assert "warning: 1 left out" in ended.err
    assert (out / "documents" / "heldout.jsonl").stat().st_size


def test_the_fields_of_records_are_named(tmp_path: Path) -> None:
    records = [{"body": f"number {i} of many", "kind": "odd" if i % 2 else "even"} for i in range(200)]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(InputError, match="no text"):
        job.read_sides(QuickstartSettings((str(path),)))
    sides = job.read_sides(QuickstartSettings((str(path),), text_field="body", domain_field="kind"))
    assert {document.domain for side in sides.values() for document in side} == {"odd", "even"}
    with pytest.raises(InputError, match="--text-field"):
        QuickstartSettings(text_field="body")


@pytest.mark.parametrize("wrong", [{"seed": 2**31}, {"steps": 0}, {"size": "huge"}, {"design": "dense"}])
def test_wrong_settings_are_refused_before_the_folder_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        QuickstartSettings(**wrong)
