"""The lists of what can be trained."""

import json

import pytest

from cli.calls import call
from loriini.routing import DESIGNS


def test_designs_and_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {}
    for command in ("designs", "recipes"):
        rows = json.loads(call(capsys, command, "--json").out)
        table = call(capsys, command).out.splitlines()
        assert [line.split()[0] for line in table] == ["name", *(row["name"] for row in rows)]
        listed[command] = {row["name"]: row for row in rows}
    designs, recipes = listed.values()
    assert designs.keys() == DESIGNS.keys()
    assert designs["lory"]["causality"] == designs["lory"]["training_causality"] == "after_first_segment"
    assert (designs["aoe-ec"]["causality"], designs["aoe-ec"]["training_causality"]) == ("strict", "none")
    assert designs["mixtral"]["load_balance"] == 0.01
    keys = ["name", "parameters_total", "parameters_active", "published_total", "published_active"]
    assert all(list(row) == keys for row in recipes.values())
    table = {line.split()[0]: line.split() for line in call(capsys, "recipes").out.splitlines()}
    assert table["name"][1:6] == ["experts", "width", "layers", "context", "vocabulary"]
    assert table["0.3b-lory-8e"][1:6] == ["8", "1,024", "24", "4,096", "32,000"]
    table = {line.split()[0]: line for line in call(capsys, "designs").out.splitlines()}
    assert "expert_choice 2" in table["aoe-ec"]
    assert table["aoe-ec"].endswith("strict, in training none")
    assert {"tiny-dense", "tiny-lory", "tiny-mixtral", "tiny-aoe"} <= recipes.keys()
