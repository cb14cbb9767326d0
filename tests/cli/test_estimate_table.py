"""An estimate as text and as JSON."""

import json
from pathlib import Path

import pytest

from cli.calls import call


def test_a_dry_run_estimates_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dry_run = ("train", "tiny-lory", "--dry-run", "--gpus", 8, "--memory", "80GiB")
    dry_run = (*dry_run, "--vocab-size", 100, "--model.num_experts", 2)
    found = json.loads(call(capsys, *dry_run, "--json").out)
    assert (found["name"], found["gpus"]) == ("tiny-lory", 8)
    ended = call(capsys, *dry_run)
    assert (ended.code, ended.err) == (0, "")
    total, active = found["parameters_total"], found["parameters_active"]
    head = f"tiny-lory on 8 GPUs\nparameters {total:,}, active for a token {active:,}, vocabulary 100\n"
    assert ended.out.startswith(head)
    assert "in 80.00 GiB" in ended.out
    assert ended.out.count("\n\n") == 3
    assert not list(tmp_path.iterdir())


def test_an_estimate_of_masked_documents_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    said = call(capsys, "train", "tiny-lory", "--dry-run", "--document_mask", "true").err
    assert "with --document_mask short documents need more memory" in " ".join(said.split())
