"""What is measured has a lower bound."""

import math
from pathlib import Path

import pytest
import torch

from loriini.bench import models
from loriini.bench.operations import Machine
from loriini.bench.parts import aoe_steps, merged_steps, sparse_steps
from loriini.bench.sizes import BENCH_SIZES
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


def test_a_part_of_which_nothing_fits_is_an_empty_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("loriini.bench.measure", lambda *_: iter(()))
    main(["bench", "--quick", "--only", "sweep", "--out", str(tmp_path / "bench.json")])
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not (tmp_path / "bench.json").exists()
