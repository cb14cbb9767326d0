"""A comparison of existing runs has all of them, and replaces no results that say more or are another's."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from compare.conftest import Compared
from loriini.common.errors import InputError
from loriini.compare.existing import existing_trials
from loriini.compare.job import place_designs, refuse_less
from loriini.compare.results import compare_trials
from loriini.compare.settings import CompareSettings
from loriini.evaluate.settings import EvaluationSettings


@pytest.mark.parametrize(
    ("before", "heldout", "message"),
    [
        (
            {"variants": [], "runs": ["a", "b", "c"], "heldout": {}},
            False,
            "also compares c; name them too, or choose",
        ),
        (
            {"variants": [], "runs": ["a"], "heldout": {"documents": ["text"]}},
            False,
            "compares on held-out text; give",
        ),
        ({"variants": [], "recipe": "tiny"}, True, "compares designs; choose another --out"),
        ({"variants": [], "runs": ["a"], "heldout": {"documents": ["text"]}}, True, None),
        ({"variants": [], "runs": ["b", "a"], "heldout": {}}, False, None),
    ],
)
def test_a_comparison_is_not_replaced_by_one_with_less_in_it(
    before: dict[str, Any], heldout: bool, message: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    refuse_less(tmp_path, ["a", "b"], heldout)
    path.write_text(json.dumps(before))
    with nullcontext() if message is None else pytest.raises(InputError, match=message):
        refuse_less(tmp_path, ["a", "b"], heldout)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.json", '{"dense": {}, "lory": {}}', "of another command; choose another --out"),
        ("results.json", '{"item": "lory-table3", "cells": []}', "of another command; choose another --out"),
        ("results.json", '{"variants": [], "runs": ["a"]}', "compares"),
        ("report.html", "<p>Routes</p>", "of another command, which has no results.json; choose another"),
    ],
)
def test_results_of_another_command_are_not_replaced(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=f"{name}: {message}"):
        place_designs(CompareSettings(("dense",)), EvaluationSettings(()), tmp_path)
    with pytest.raises(
        InputError, match=f"{name}: {message}" if "runs" not in content else "also compares a"
    ):
        refuse_less(tmp_path, ["b"], heldout=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_runs_that_differ_in_an_optimizer_setting_are_no_sweep(compared: Compared, tmp_path: Path) -> None:
    folder = compared.folder("lory", 0)
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    written = json.loads((other / "run.json").read_text())
    written["optimizer"]["learning_rate"] *= 2
    written["model"]["num_key_value_heads"] = written["model"]["num_attention_heads"]  # as if it were none
    (other / "run.json").write_text(json.dumps(written))
    variants = compare_trials(existing_trials([folder, other]), {}, {})["variants"]
    assert [list(v["settings"]) for v in variants] == [["optimizer.learning_rate"]] * 2
    assert [(v["chosen"], v["edge"]) for v in variants] == [(True, [])] * 2


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
    trials = existing_trials([folder, *others])
    names = [trial.cell.variant for trial in trials]
    assert names == [f"lory ({folder})", *[f"lory ({others[0]})"] * 2]
    assert [len(trial.cell.settings) for trial in trials] == [4] * 3
