"""Rows as a table or as JSON; one process of many prints."""

import json

import pytest

from loriini.cli.output import WIDEST, format_table, print_once, print_rows


def test_a_table_is_aligned_and_printable() -> None:
    assert format_table(["a", "bb"], [["long", "1"]], align_right=True) == "a     bb\nlong   1"
    assert format_table(["a"], [["evil\x1b]0;owned\x07"]]).endswith(r"evil\x1b]0;owned\x07")


def test_a_long_cell_is_cut_but_not_in_the_last_column(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "x" * 5000, "value": "y" * 100}, {"name": "a", "value": 1}]
    print_rows(rows, ("name", "value"), as_json=False)
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first == "x" * (WIDEST - 1) + "…  " + "y" * 100
    assert second == "a".ljust(WIDEST) + "  1"
    print_rows(rows, ("name", "value"), as_json=True)
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize(
    ("rank", "local_rank", "every_node", "printed"),
    [
        (0, 0, False, True),
        (8, 0, False, False),
        (8, 0, True, True),
        (9, 1, True, False),
    ],
)
def test_one_process_prints(
    rank: int,
    local_rank: int,
    every_node: bool,
    printed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    print_once("done", every_node=every_node)
    assert capsys.readouterr().out == "done\n" * printed
