"""What is measured of a cell: its evaluation is kept for its model, tokens and settings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.calls import Captured, call
from compare.conftest import Compared
from loriini.compare import measures
from loriini.compare.existing import existing_trainings
from loriini.compare.job import measure_trainings
from loriini.compare.measures import evaluate_trainings
from loriini.compare.results import compare_trainings
from loriini.evaluate.runs import ScoredModel, evaluate_runs, shared_heldout
from loriini.evaluate.settings import EvaluationSettings


@pytest.fixture(scope="module")
def two_documents(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("heldout") / "a.jsonl"
    path.write_text(json.dumps({"text": "they say that " * 300}) + "\n")
    return str(path)


def test_a_kept_evaluation_is_of_the_same_bytes_of_text(
    compared: Compared, two_documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = compared.folder("dense", 0)
    settings, heldout = shared_heldout([ScoredModel.from_run(folder)], EvaluationSettings((two_documents,)))
    trainings = existing_trainings([folder])
    first = evaluate_trainings(trainings, heldout, settings, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(measures, "evaluate_on", None)
        assert evaluate_trainings(trainings, heldout, settings, tmp_path) == first
    longer = {"a": replace(heldout["a"], bytes_per_token=2 * heldout["a"].bytes_per_token)}
    again = evaluate_trainings(trainings, longer, settings, tmp_path)
    assert again[folder]["bits_per_byte"]["a"] == pytest.approx(first[folder]["bits_per_byte"]["a"] / 2)


@pytest.mark.parametrize(("skip", "named"), [(0, True), (7, True), (8, False)])
def test_perplexity_that_counts_segment_1_is_named(
    skip: int, named: bool, compared: Compared, tmp_path: Path
) -> None:
    folders = [compared.folder(name, 0) for name in ("dense", "lory")]
    models = map(ScoredModel.from_run, folders)
    settings, heldout = shared_heldout([*models], EvaluationSettings((str(compared.heldout),), skip=skip))
    trainings = existing_trainings(folders)
    found = compare_trainings(trainings, evaluate_trainings(trainings, heldout, settings, tmp_path), {})
    remark = "Perplexity counts tokens of segment 1 (--skip), which lory routes by itself"
    assert any(remark in one for one in found["remarks"]) == named


@pytest.mark.parametrize("contexts", ["documents", "strung"])
def test_documents_are_compared_as_evaluate_does(contexts: Any, compared: Compared, tmp_path: Path) -> None:
    folders = [compared.folder("dense", 0), compared.folder("lory", 0)]
    settings = EvaluationSettings((str(compared.heldout),), contexts=contexts)
    heldout = shared_heldout(list(map(ScoredModel.from_run, folders)), settings)
    results = measure_trainings(existing_trainings(folders), heldout, {}, tmp_path / "cache")
    expected = evaluate_runs(folders, settings)
    for cell, found in zip(results["cells"], expected, strict=True):
        assert cell["perplexity"] == pytest.approx(found["perplexity"])
    lory = next(v for v in results["variants"] if v["name"] == "lory")
    for domain, difference in expected[1]["difference"].items():
        assert lory["difference"][domain]["documents"] == pytest.approx(difference)
    assert results["heldout"]["contexts"] == expected[0]["contexts"] == contexts


def test_experts_in_use_are_those_of_several_steps() -> None:
    """In a single step few units choose: here one of two experts, another in every step."""
    step = {"tokens": 1, "experts": 2, "active": [1], "gate_entropy": [0.0], "confidence_entropy": [0.5]}
    metrics = [{**step, "load_entropy": [0.0]} for _ in range(30)]
    assert measures.expert_use_measures(metrics, soft=False)["experts_in_use"] == 1
    metrics[9] |= {"load": [[0.5, 0.5]]}
    assert measures.expert_use_measures(metrics, soft=False)["experts_in_use"] == pytest.approx(2)
    metrics[29] |= {"load": [[0.9, 0.1]]}
    found = measures.expert_use_measures(metrics, soft=False)
    assert found["experts_in_use"] == pytest.approx(0.9**-0.9 * 0.1**-0.1)
    assert found["load_entropy"] == [0.3251]
    assert found.keys() - measures.expert_use_measures(metrics, soft=True).keys() == {"utilisation"}


def test_documents_of_the_corpus_are_warned_of_before_they_are_trained_on(
    compared: Compared, tmp_path: Path, capsys: Captured
) -> None:
    known = tmp_path / "known.jsonl"
    known.write_text(json.dumps({"text": "7 times 7 is 49, they say. " * 4}) + "\n")
    arguments = ("dense", "lory", "--seeds", 1, "--commands", *compared.arguments)
    heldout = ("--heldout", known)
    new = call(capsys, "compare", *arguments, "--out", tmp_path / "new", *heldout)
    assert len(new.out.splitlines()) == 2
    assert new.err.count("1 of 41 held-out documents are also in the corpus") == 1
    finished = call(capsys, "compare", *arguments, "--out", compared.out, *heldout)
    assert (finished.out, finished.err) == ("", "")
