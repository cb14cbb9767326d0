"""Rows as a table or as JSON; one process of many prints."""

import json

import pytest

from loriini.cli.output import format_table, print_once, print_rows


def test_a_table_is_aligned_and_printable(capsys: pytest.CaptureFixture[str]) -> None:
    assert format_table(["a", "bb"], [["long", "1"]], align_right=True) == "a     bb\nlong   1"
    assert format_table(["a"], [["evil\x1b]0;owned\x07"]]).endswith(r"evil\x1b]0;owned\x07")
    print_rows(rows := [{"name": "a", "value": 1}], ("name", "value"), as_json=True)
    assert json.loads(capsys.readouterr().out) == rows


def test_one_process_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, local_rank, once, once_a_node in ((0, 0, 1, 1), (8, 0, 0, 1), (9, 1, 0, 0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        print_once("done")
        print_once("done", every_node=True)
        assert capsys.readouterr().out == "done\n" * (once + once_a_node)
