"""What copies gain with routing and without: models that differ in nothing else, at one learning rate."""

import json
from pathlib import Path

import pytest
from tinybench import results_of, script


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of one rate and two seeds, trained in this process."""
    return results_of("copies", tmp_path_factory.mktemp("copies"), "--steps=3", "--rates", "8e-3")


def test_models_differ_in_their_gates_alone(made: Path) -> None:
    runs = json.loads(made.read_text())["runs"]
    dense, routed, fixed = runs.values()
    assert {run["optimizer"]["learning_rate"] for run in runs.values()} == {0.008}
    assert (dense["model"]["num_experts"], routed["model"]["num_experts"]) == (1, 8)
    assert 0 < routed["warmup"]["dense_share"] * routed["steps"] <= 1  # a single dense step
    assert fixed == {**routed, "routing": {**routed["routing"], "gates": "uniform"}}


def test_differences_are_from_the_dense_model(made: Path) -> None:
    found = json.loads(made.read_text())
    dense, routed, fixed = found["rates"]["8e-3"].values()
    for mixture in (routed, fixed):
        ratio = mixture["perplexity"]["all"]["mean"] / dense["perplexity"]["all"]["mean"]
        assert mixture["difference"]["all"]["change"] == pytest.approx(ratio - 1, abs=1e-6)
        assert mixture["finished_seeds"] == [100, 101]
    assert "difference" not in dense
    text = "\n".join(script("leaderboard_tables").copies(found))
    assert "| 8e-3 | " in text
    assert "2 seeds" in text
