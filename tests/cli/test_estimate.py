"""An estimate as text and as JSON."""

import json
from pathlib import Path

import pytest

from cli.calls import call


def test_a_dry_run_estimates_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call(capsys, "train", "0.3b-lory-8e", "--dry-run", "--gpus", 8, "--memory", "80GiB")
    assert (ended.code, ended.err) == (0, "")
    assert "0.3b-lory-8e on 8 GPUs\nparameters 1,827,390,464" in ended.out
    assert "in 80.00 GiB" in ended.out
    asked = ("train", "tiny-lory", "--dry-run", "--json", "--vocab-size", 100, "--model.num_experts", 2)
    found = json.loads(call(capsys, *asked).out)
    assert (found["name"], found["gpus"]) == ("tiny-lory", 1)
    assert not list(tmp_path.iterdir())
