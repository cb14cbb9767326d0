"""Routes and their report."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cli.calls import Ended, Made, assert_refused, call


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


@pytest.mark.parametrize("of", [(), ("--per-document",)])
def test_analyze_takes_as_many_of_each_domain_as_it_is_told(
    of: Sequence[str], made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--documents", made.documents, "--domain-field", "topic", "--out", tmp_path, *of)
    assert call(capsys, "analyze", made.run, *asked, "--instances", 2).code == 0
    assert json.loads((tmp_path / "routes.json").read_text())["sequences"] == {"birds": 2, "tools": 2}
    assert_refused(call(capsys, "analyze", made.run, *asked, "--instances", 0), "--instances is 0;")


def test_documents_that_were_apart_in_training_are_routed_apart(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made.run, run)
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "document_mask": True}))
    ended = call(capsys, "analyze", run, "--documents", made.documents, "--domain-field", "topic")
    assert "was trained with document_mask, so each document is routed by itself" in ended.err
    assert json.loads((run / "routes.json").read_text())["sequences"] == {"birds": 120, "tools": 120}


def test_another_commands_report_is_left(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("a comparison")
    ended = call(capsys, "analyze", made.run, "--documents", made.documents, "--out", tmp_path)
    assert_refused(ended, "report.html: of another command, which has no routes.npz; choose another --out")
    assert (tmp_path / "report.html").read_text() == "a comparison"


def test_a_dense_model_has_no_routes_to_analyze(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "tiny-dense", "--out", tmp_path / "dense", "--corpus", made.corpus, "--length", 64)
    assert call(capsys, *train, "--steps", 1).code == 0
    ended = call(capsys, "analyze", tmp_path / "dense", "--documents", made.documents)
    assert_refused(ended, "dense model")
