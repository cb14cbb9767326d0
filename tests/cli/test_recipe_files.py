"""Runs from files, and from other packages."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from cli.calls import Captured, call
from loriini.common.errors import InputError
from loriini.recipes import RECIPES, find_recipe
from loriini.routing import DESIGNS

TOML = """
recipe = "tiny-lory"
steps = 3

[routing]
design = "prefix"
segment_length = 16

[model]
qk_norm = "head"
rope_scaling = {rope_type = "linear", factor = 2.0}

[optimizer]
betas = [0.9, 0.99]
"""
PYTHON = """
from dataclasses import replace
from loriini.recipes import RECIPES

mine = replace(RECIPES["tiny-lory"], name="mine", steps=3)

def made():
    return replace(mine, name="made")

number = 3
"""


def test_a_toml_changes_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    run, base = find_recipe(str(path)), RECIPES["tiny-lory"]
    assert (run.name, run.steps, run.length) == (base.name, 3, base.length)
    assert (run.routing.unit, run.routing.segment_length) == ("prefix", 16)
    assert run.model.hidden_size == base.model.hidden_size
    assert run.model.rope_scaling == {"rope_type": "linear", "factor": 2.0}
    assert run.optimizer.betas == (0.9, 0.99)
    assert run.config(512, 0).rope_parameters["factor"] == 2.0
    path.write_text('routing = "mixtral"\ncorpus = ["here"]\nmodel = {num_experts = 4}')
    run = find_recipe(str(path))
    assert (run.name, run.steps, run.routing, run.corpus) == (
        "mine",
        1000,
        DESIGNS["mixtral"],
        (Path("here"),),
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ("[]", "fields of a run"),
        ("{}", "routing"),
        ({"routing": "lory", "stepps": 3}, "nearest is steps"),
        ({"routing": {"design": "rory"}}, "'rory'"),
        ({"routing": "lory", "steps": "many"}, "steps"),
        ({"routing": "lory", "corpus": "here"}, "corpus"),
        ({"recipe": "tiny-lori"}, "nearest is tiny-lory"),
        ({"routing": "mixtral"}, "num_experts"),
        ({"recipe": "0.3b-dense", "routing": {"design": "lory"}}, "num_experts"),
    ],
    ids=str,
)
def test_a_file_that_is_no_run_is_one_line(
    content: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError) as refused:
        find_recipe("mine.json")
    assert str(refused.value).startswith("mine.json: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_recipes_of_other_packages_are_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "other_package.py").write_text(PYTHON)
    monkeypatch.syspath_prepend(str(tmp_path))
    entries = {
        "theirs": "other_package:made",
        "broken": "absent_package:run",
        "number": "other_package:number",
        "tiny-lory": "other_package:made",
    }
    found = [EntryPoint(name, value, "loriini.recipes") for name, value in entries.items()]
    monkeypatch.setattr("loriini.recipes.entry_points", lambda group: found)
    assert find_recipe("theirs").name == "made"
    assert find_recipe("tiny-lory") == RECIPES["tiny-lory"]
    with pytest.raises(InputError, match="recipe broken: absent_package:run cannot be imported"):
        find_recipe("broken")
    with pytest.raises(InputError, match="recipe number: is a int; it must be a TrainConfig"):
        find_recipe("number")
    with pytest.raises(InputError, match="the nearest is theirs"):
        find_recipe("their")
    listed = call(capsys, "recipes", "--json")
    names = [row["name"] for row in json.loads(listed.out)]
    assert names == [*RECIPES, "theirs"]
    assert "recipe broken" in listed.err
    assert "recipe number" in listed.err


def test_a_file_has_help_and_a_dry_run(tmp_path: Path, capsys: Captured) -> None:
    path, settings = tmp_path / "mine.toml", tmp_path / "settings.json"
    path.write_text(TOML)
    shown = call(capsys, "train", path, "--help").out
    assert shown.partition("--steps ")[2].partition("--")[0].rstrip().endswith("(3)")
    dry = json.loads(call(capsys, "train", path, "--dry-run", "--json").out)
    settings.write_text(json.dumps(dry["run"]))
    found = find_recipe(str(settings))
    assert find_recipe(str(path)).fill_auto_from(found) == found
