"""What a corpus holds, as numbers and a page."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from cli.calls import Made, assert_refused, call
from loriini.data.jobs.artifact import load_artifact
from loriini.data.prepare.stages import STAGES


def test_inspect_prints_numbers_and_writes_a_page(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    ended = call(capsys, "inspect", made.corpus)
    assert ended.code == 0
    table = dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert table["domain birds"].strip().startswith("120 documents")
    assert table["page"].strip() == str(made.corpus / "inspect.html")
    page = made.corpus / "inspect.html"
    assert "Documents and their nearest" in page.read_text()
    page.unlink()
    found = json.loads(call(capsys, "inspect", made.corpus, "--json").out)
    assert not page.exists()
    assert found["domains"]["tools"]["documents"] == 120


def test_a_corpus_that_may_only_be_read_is_inspected(
    made: Made, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("loriini.analyze.corpus.write_corpus_page", refuse)
    ended = call(capsys, "inspect", made.corpus)
    assert ended.code == 0
    assert "domain birds" in ended.out
    assert "page" not in dict(line.split("  ", 1) for line in ended.out.splitlines())
    assert ended.err == f"warning: {made.corpus}: Read-only file system, so no page is written there\n"


def test_inspect_verifies_the_files(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(made.corpus, corpus)
    files = sum(len(load_artifact(made.corpus / name).files) for name in STAGES)
    assert call(capsys, "inspect", corpus, "--verify").out.splitlines()[-1].endswith(f"  all {files}")
    (corpus / "instances" / "instances.bin").write_bytes(b"half")
    assert_refused(call(capsys, "inspect", corpus, "--verify"), "instances.bin is not what was written")
