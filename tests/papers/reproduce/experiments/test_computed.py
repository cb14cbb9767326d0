"""Computed items: who classifies what in the toy study, throughput and memory."""

from pathlib import Path
from typing import Any

import pytest

from loriini.papers.published import published_values
from loriini.papers.reproduce.claim import HOLDS
from loriini.papers.reproduce.experiments import computed, toy
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.experiments.computed import slower_and_larger
from loriini.papers.reproduce.job import compute
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.scales import TINY
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


def test_models_of_two_items_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[list[str]] = []

    def rates(runs: dict[str, TrainConfig], *_: Any) -> dict[str, list[float]]:
        timed.append(list(runs))
        return {row: [100.0 / len(timed) - i] * 2 for i, row in enumerate(runs)}

    monkeypatch.setattr(computed, "step_rates", rates)
    items = ("lory-table3", "lory-appendix-b")
    found = [compute(EXPERIMENTS[item], TINY, 1, tmp_path) for item in items]
    assert (len(timed), found[0]) == (1, found[1])
    columns = EXPERIMENTS["lory-appendix-b"].columns(Measured({}, "", found[1]), "0.3B/8E")
    assert columns["merging"] == {0: pytest.approx(100 * 8 / 256, rel=1e-3)}
    assert columns["training"][0] > 0


def test_throughput_is_in_the_unit_of_the_table() -> None:
    """Thousands of tokens per second, as the brackets beside it."""
    measured = Measured({}, "", {"rates": {"MoE": [51_000.0]}, "memory": {"MoE": 1.0}})
    assert EXPERIMENTS["aoe-table4"].columns(measured, "MoE")["throughput"] == {0: 51.0}
    units = {v.unit for v in published_values("aoe-table4") if v.column == "throughput"}
    assert units == {"thousand tokens/s/GPU"}


def test_every_rank_is_slower_than_the_mixture() -> None:
    rates = {"MoE": 100.0, "AoE 64": 97.0, "AoE 128": 105.0, "AoE 256": 94.0, "AoE 512": 90.0}
    extra = {
        "rates": {row: [rate, rate + 0.1, rate - 0.1] for row, rate in rates.items()},
        "memory": dict.fromkeys(rates, 2.0) | {"MoE": 1.0},
    }
    found = {claim.quantity: claim.judged() for claim in slower_and_larger(Measured({}, "", extra))}
    (fails,) = (quantity for quantity, verdict in found.items() if verdict != HOLDS)
    assert fails == "throughput of AoE 128 over that of MoE"
