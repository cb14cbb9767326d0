"""Computed items: who classifies what in the toy study, and bytes where no process can be started."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loriini.papers.published import ITEMS, published_values
from loriini.papers.reproduce.claims.claim import HOLDS
from loriini.papers.reproduce.claims.measured import Measured
from loriini.papers.reproduce.experiments import computed, lory_communication, sending, toy
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.experiments.computed import slower_and_larger
from loriini.papers.reproduce.experiments.throughput import conditions
from loriini.papers.reproduce.scales import TINY, find_scale
from loriini.papers.reproduce.texts import Texts
from loriini.papers.reproduce.writing import ItemWriter
from loriini.train.config import TrainConfig


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
    assert toy.favourite_share(load_CE) == favourite
    assert toy.others_share(load_CE) == other
    assert toy.split(load_CE) == split


def test_without_processes_bytes_are_those_of_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(sending, "_start", refuse)
    extra = lory_communication.bytes_sent(TINY, 1)
    assert "processes cannot be started here" in extra["remark"]
    claims = list(lory_communication.sent_by_experts(Measured({}, "", extra)))
    assert [claim.verdict for claim in claims] == [HOLDS] * 3


@pytest.mark.parametrize(
    ("broken", "reason"), [("raise SystemExit('no way')", "no way"), ("exit(3)", "exit code 3")]
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
    monkeypatch.setattr(sending, "_start", start)
    monkeypatch.setattr(sending, "SECONDS", 20)
    assert reason in sending.sent_here()["remark"]
    assert all(process.returncode for process in processes)


def test_what_could_not_be_measured_is_tried_again(tmp_path: Path) -> None:
    attempts = iter([{"remark": "no process"}, {"sent": 1}])
    experiment = replace(lory_communication.SENT_EXPERIMENT, compute=lambda scale, seeds: next(attempts))
    writer = ItemWriter(Texts(tmp_path, TINY), 1, tmp_path)
    found = [writer.compute(experiment) for _ in range(3)]
    assert found == [{"remark": "no process"}, {"sent": 1}, {"sent": 1}]


def test_models_of_two_items_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[list[str]] = []

    def rates(runs: dict[str, TrainConfig], *_: Any) -> dict[str, list[float]]:
        timed.append(list(runs))
        return {row: [100.0 / len(timed) - i] * 2 for i, row in enumerate(runs)}

    monkeypatch.setattr(computed, "step_rates", rates)
    writer = ItemWriter(Texts(tmp_path, TINY), 1, tmp_path)
    found = [writer.compute(EXPERIMENTS[item]) for item in ("lory-table3", "lory-appendix-b")]
    assert (len(timed), found[0]) == (1, found[1])
    columns = EXPERIMENTS["lory-appendix-b"].columns(Measured({}, "", found[1]), "0.3B/8E")
    assert columns["merging"] == {0: pytest.approx(100 * 8 / 256, rel=1e-3)}
    assert columns["training"][0] > 0


def test_widths_of_which_the_paper_says_nothing_decide_nothing() -> None:
    point = {"load": [[1, 0], [1, 0], [0, 1]], "accuracy": [1, 1, 1]}
    studies = {row: {name: [[point]] * 2 for name in toy.MODELS} for row in toy.STUDIES}

    def judged() -> set[str]:
        claims = toy.who_classifies_what(Measured({}, "", {"studies": studies}))
        return {claim.quantity.partition(":")[0] for claim in claims} & studies.keys()

    named = judged()
    alike = {row for row, s in toy.STUDIES.items() if s.width == s.expert_width}
    assert named == alike - {toy.MAIN}
    unlearned = min(named)
    studies[unlearned] = {name: [[{**point, "accuracy": [1, 1, 0]}], [point]] for name in toy.MODELS}
    assert judged() == named - {unlearned}


def test_what_is_timed_is_said_with_its_sizes() -> None:
    small = find_scale("small")
    lory, aoe = (
        "; ".join(conditions([*ITEMS[item].runs.values()], small)) for item in ("lory-table3", "aoe-table4")
    )
    assert "width 512 with 4 layers, in steps of one micro-batch of 4 × 1,024 tokens, 16 segments" in lory
    assert "width 384 with 4 layers" in aoe
    assert "segments" not in aoe


def test_throughput_is_in_the_unit_of_the_table() -> None:
    """Thousands of tokens per second, as the brackets beside it."""
    measured = Measured({}, "", {"rates": {"MoE": [51_000.0]}, "memory": {"MoE": 1.0}})
    assert EXPERIMENTS["aoe-table4"].columns(measured, "MoE")["throughput"] == {0: 51.0}
    assert {v.unit for v in published_values("aoe-table4") if v.column == "throughput"} == {
        "thousand tokens/s/GPU"
    }


def test_every_rank_is_slower_than_the_mixture() -> None:
    rates = {"MoE": 100.0, "AoE 64": 97.0, "AoE 128": 105.0, "AoE 256": 94.0, "AoE 512": 90.0}
    extra = {
        "rates": {row: [rate, rate + 0.1, rate - 0.1] for row, rate in rates.items()},
        "memory": dict.fromkeys(rates, 2.0) | {"MoE": 1.0},
    }
    found = {claim.quantity: claim.verdict for claim in slower_and_larger(Measured({}, "", extra))}
    assert [quantity for quantity, verdict in found.items() if verdict != HOLDS] == [
        "throughput of AoE 128 over that of MoE"
    ]
