"""Computed items: who classifies what in the toy study, and bytes where no process can be started."""

from typing import Any

import pytest

from loriini.reproduce import sent, sent_rows, toy_rows
from loriini.reproduce.claims import HOLDS
from loriini.reproduce.measured import Measured
from loriini.reproduce.scales import TINY


@pytest.mark.parametrize(
    ("load_CE", "favourite", "other", "split"),
    [
        ([[1, 0], [1, 0], [0.1, 0.9]], 1, 0.9, 0),
        ([[0, 1], [0, 1], [0.1, 0.9]], 1, 0.1, 0),
        ([[1, 0], [0, 1], [0.5, 0.5]], 0.5, 0.5, 1),
    ],
)
def test_loads_tell_who_classifies_what(
    load_CE: list[list[float]], favourite: float, other: float, split: float
) -> None:
    assert toy_rows.favourite_share(load_CE) == favourite
    assert toy_rows.others_share(load_CE) == other
    assert toy_rows.split(load_CE) == split


def test_without_processes_bytes_are_those_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(sent, "_start", refuse)
    extra = sent_rows.bytes_sent(TINY, 1)
    assert "processes cannot be started here" in extra["remark"]
    claims = list(sent_rows.sent_by_experts(Measured({}, "", extra)))
    assert [claim.verdict for claim in claims] == [HOLDS] * 3
