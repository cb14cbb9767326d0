"""Rows as a table one can read."""

import json

import pytest

from cli.calls import call


@pytest.mark.parametrize("command", ["designs", "recipes"])
def test_tables_have_a_line_for_each_row(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(call(capsys, command, "--json").out)
    table = call(capsys, command).out.splitlines()
    assert [line.split()[0] for line in table] == ["name", *(row["name"] for row in rows)]
