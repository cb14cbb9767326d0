"""Rows as a table one can read."""

import json

import pytest

from cli.calls import call
from loriini.cli.table import WIDEST, show


@pytest.mark.parametrize("command", ["designs", "recipes"])
def test_tables_have_a_line_for_each_row(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(call(capsys, command, "--json").out)
    table = call(capsys, command).out.splitlines()
    assert [line.split()[0] for line in table] == ["name", *(row["name"] for row in rows)]


def test_a_long_name_is_cut_and_the_last_column_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "x" * 5000, "value": "y" * 100}, {"name": "a", "value": 1}]
    show(rows, ("name", "value"), as_json=False)
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first == "x" * (WIDEST - 1) + "…  " + "y" * 100
    assert second == "a".ljust(WIDEST) + "  1"
    show(rows, ("name", "value"), as_json=True)
    assert json.loads(capsys.readouterr().out) == rows
