"""The script for a GPU, tried at tiny sizes on a CPU."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tinybench import TINY, script


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run the script's parts; returns its results and exit status."""
    module = script("gpu")
    monkeypatch.setattr(module, "QUICK", replace(TINY, experts=(4,), decode_batches=(2,)))
    for name, designs in {"MERGED": ("lory",), "SELECTED": ("mixtral",), "COMPILED": ()}.items():
        monkeypatch.setattr(module, name, designs)

    def run(*arguments: str) -> tuple[dict[str, list[dict[str, object]]], object]:
        path, status = tmp_path / "gpu.json", 0
        monkeypatch.setattr(sys, "argv", ["gpu", "--tiny", "--results", str(path), *arguments])
        try:
            module.main()
        except SystemExit as end:
            status = end.code
        return json.loads(path.read_text()), status

    return run


def test_everything_is_checked_and_measured(gpu) -> None:  # type: ignore[no-untyped-def]
    results, status = gpu()
    assert status == 0
    assert all(check["passed"] for check in results["correctness"])
    names = [check["check"] for check in results["correctness"]]
    assert any("mixtral, 64 experts" in name for name in names)
    assert any("greedy decoding" in name for name in names)
    assert {row["what"] for row in results["bench"]} == {"train_step", "decode", "memory"}
    assert [each["design"] for each in results["profile"]] == ["dense", "lory"]
    assert results["profile"][0]["operations"][0]["ms"] > 0
