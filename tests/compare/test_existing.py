"""A comparison of existing runs has all of them, and replaces no results that say more or are another's."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from compare.conftest import Compared
from loriini.common.errors import InputError
from loriini.compare.existing import existing_trainings
from loriini.compare.job import check_out
from loriini.compare.report import grid_section
from loriini.compare.results import compare_trainings

OTHER = {"variants": [], "runs": ["a", "b", "c"], "heldout": {}}
SCORED = {"variants": [], "runs": ["a"], "heldout": {"documents": ["text"]}}
DESIGNS = {"variants": [], "recipe": "tiny"}


@pytest.mark.parametrize(
    ("before", "runs", "heldout", "refused"),
    [
        (OTHER, ["a", "b"], False, True),
        (SCORED, ["a", "b"], False, True),
        (SCORED, ["a", "b"], True, False),
        (DESIGNS, ["a"], True, True),
        (DESIGNS, [], True, False),
        (SCORED, [], True, True),
        ({"dense": {}, "lory": {}}, [], True, True),  # of another command
    ],
)
def test_a_comparison_is_not_replaced_by_another_or_by_one_with_less_in_it(
    before: dict[str, Any], runs: list[str], heldout: bool, refused: bool, tmp_path: Path
) -> None:
    check_out(tmp_path, runs, heldout)
    (tmp_path / "results.json").write_text(json.dumps(before))
    with pytest.raises(InputError, match="--out") if refused else nullcontext():
        check_out(tmp_path, runs, heldout)
    (tmp_path / "results.json").rename(tmp_path / "report.html")
    with pytest.raises(InputError, match="report"):
        check_out(tmp_path, runs, heldout)


def test_runs_that_differ_in_an_optimizer_setting_are_no_sweep(compared: Compared, tmp_path: Path) -> None:
    folder = compared.folder("lory", 0)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    written = json.loads((other / "run.json").read_text())
    written["optimizer"]["learning_rate"] *= 2
    written["model"]["num_key_value_heads"] = written["model"]["num_attention_heads"]  # as if it were none
    (other / "run.json").write_text(json.dumps(written))
    variants = compare_trainings(existing_trainings([folder, other]), {}, {})["variants"]
    rates = [
        json.loads((run / "run.json").read_text())["optimizer"]["learning_rate"] for run in (folder, other)
    ]
    assert [v["name"] for v in variants] == [f"lory learning_rate={rate}" for rate in rates]
    assert all(v["chosen"] and not v["settings"] for v in variants)
    assert grid_section({"variants": variants}) is None


def test_runs_that_differ_in_many_settings_are_named_by_their_folders(
    compared: Compared, tmp_path: Path
) -> None:
    folder = compared.folder("lory", 0)
    others = [Path(shutil.copytree(folder, tmp_path / name)) for name in ("a", "b")]
    for seed, other in enumerate(others, start=7):
        written = json.loads((other / "run.json").read_text())
        changed = {"learning_rate": 0.5, "weight_decay": 0.5, "clip": 0.5, "final_rate": 0.5}
        written |= {"seed": seed, "optimizer": {**written["optimizer"], **changed}}
        (other / "run.json").write_text(json.dumps(written))
    trainings = existing_trainings([folder, *others])
    names = [training.variant for training in trainings]
    assert names == [f"lory ({folder})", *[f"lory ({others[0]})"] * 2]
