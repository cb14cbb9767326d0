"""Computed items: who classifies what in the toy study, and bytes where no process can be started."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loriini.reproduce import job, sent, sent_rows, toy_rows
from loriini.reproduce.claims import HOLDS
from loriini.reproduce.job import ReproduceSettings
from loriini.reproduce.measured import Measured
from loriini.reproduce.plan import Plan
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


@pytest.mark.parametrize(
    ("broken", "reason"), [("raise SystemExit('no way')", "no way"), ("exit(3)", "status 3")]
)
def test_a_process_that_fails_ends_the_others(
    broken: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first waits for the second, which fails."""

    def start(folder: Path, rank: int, log: Path) -> "subprocess.Popen[bytes]":
        code = "import time; time.sleep(60)" if rank == 0 else broken
        with open(log, "wb") as file:
            processes.append(subprocess.Popen([sys.executable, "-c", code], stderr=file))
        return processes[-1]

    processes: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(sent, "_start", start)
    monkeypatch.setattr(sent, "SECONDS", 20)
    assert reason in sent.sent_here()["remark"]
    assert all(process.returncode for process in processes)


def test_what_could_not_be_measured_is_tried_again(tmp_path: Path) -> None:
    found = iter([{"remark": "no process"}, {"sent": 1}])
    plan = Plan(replace(sent_rows.SENT_ROW, compute=lambda scale, seeds: next(found)), ())
    work = job._Job([], ReproduceSettings(("lory-fig7",)), cast(Any, SimpleNamespace(scale=TINY)), tmp_path)
    assert [work._computed(plan) for _ in range(3)] == [{"remark": "no process"}, {"sent": 1}, {"sent": 1}]


def test_widths_of_which_the_paper_says_nothing_decide_nothing() -> None:
    point = {"load": [[1, 0], [1, 0], [0, 1]], "accuracy": [1, 1, 1]}
    studies = {row: {name: [[point]] for name in toy_rows.MODELS} for row in toy_rows.STUDIES}
    claims = list(toy_rows.who_classifies_what(Measured({}, "", {"studies": studies})))
    named = {claim.says.partition(":")[0] for claim in claims} & studies.keys()
    alike = {row for row, s in toy_rows.STUDIES.items() if s.width == s.expert_width}
    assert named == alike - {toy_rows.MAIN}
