"""What is measured has a lower bound."""

import math
from pathlib import Path

import pytest
import torch

from loriini.bench import fitting, models
from loriini.bench.operations import Machine
from loriini.bench.parts import aoe_steps, merged_steps, recomputed_steps, sparse_steps
from loriini.bench.sizes import BENCH_SIZES, CUDA
from loriini.cli import main


@pytest.mark.parametrize("key", [key for key in BENCH_SIZES if key != ("cuda", True)], ids=str)
def test_every_design_that_is_measured_has_a_bound(
    key: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "autocast_dtype", lambda precision: torch.bfloat16)
    size = BENCH_SIZES[key]
    compared = (*merged_steps(size), *sparse_steps(size), *aoe_steps(size))
    cases = {case.name: case for each in compared for case in (each.baseline, *each.cases)}
    bounds = [case.least(Machine(1e10, 1e12)) for case in cases.values() if case.least]
    assert len(bounds) == 5
    assert all(0 < bound < math.inf for bound in bounds)


H200 = 139 * 2**30


def test_a_gpu_measures_the_merges_that_it_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting, "pick_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(fitting, "memory_here", lambda: H200)
    found = [
        [(case.details["segments"], case.experts, case.details["recompute_merge"]) for case in compared.cases]
        for compared in merged_steps(CUDA)
    ]
    assert found == [
        [(64, 8, False), (64, 16, False), (64, 32, True)],
        [(128, 8, False), (128, 16, True)],
        [(256, 8, True)],
    ]
    assert "lory, 32 experts, micro-batches of 8 instances: left out" in capsys.readouterr().err
    again = [[case.experts for case in compared.cases] for compared in recomputed_steps(CUDA)]
    assert again == [[8, 32], [8], [8]]


def test_a_part_of_which_nothing_fits_is_an_empty_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("loriini.bench.measure", lambda *_, **__: iter(()))
    main(["bench", "--quick", "--only", "sweep", "--out", str(tmp_path / "bench.json")])
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not (tmp_path / "bench.json").exists()
