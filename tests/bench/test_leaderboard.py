"""The leaderboard and the ladder: rates chosen by training loss alone, reported by other seeds."""

import json
from pathlib import Path
from typing import Any

from tinybench import results_of

RATES = ("--rates", "1e-4", "8e-3")


def best(tried: dict[str, Any]) -> str:
    losses: dict[str, float] = tried["training_loss"]
    return min(losses, key=losses.__getitem__)


def test_a_leaderboard_reports_the_rate_of_the_lowest_training_loss_by_other_seeds(tmp_path: Path) -> None:
    designs = ("--designs", "dense", "lory", "label")
    found = json.loads(results_of("leaderboard", tmp_path, "--steps=3", *RATES, *designs).read_text())
    warm = [f"{name} with dense warm-up" for name in ("lory", "label")]
    assert [v["name"] for v in found["variants"]] == ["dense", "lory", "label", *warm]
    assert found["variants"][0]["perplexity"]["all"]["mean"] > 1
    assert all(v["finished_seeds"] == [100, 101] for v in found["variants"])
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("work/runs/*/run.json")]
    assert {run["model"]["initializer_range"] for run in runs} == {0.08}  # of width 64
    for name, tried in found["tried"].items():
        assert tried["rate"] == best(tried)
        reported = [
            run["optimizer"]["learning_rate"]
            for run in runs
            if run["seed"] >= 100 and run["name"] == name.split()[0]
        ]
        assert float(tried["rate"]) in reported
    assert {run["name"] for run in runs if run["warmup"]["dense_share"]} == {"lory", "label"}


def test_all_designs_of_a_ladder_have_the_best_rate_of_the_baseline(tmp_path: Path) -> None:
    sizes = ("--width=64", "--sizes=2", "--designs=lory")
    found = json.loads(results_of("ladder", tmp_path, "--steps=10", *sizes, *RATES).read_text())
    named = [(v["design"], v["width"]) for v in found["variants"]]
    assert named == [(design, width) for width in (32, 64) for design in ("dense", "lory")]
    for path in tmp_path.glob("work/runs/*/run.json"):
        run = json.loads(path.read_text())
        tried = found["tried"][str(run["model"]["hidden_size"])]
        if run["seed"] >= 100:
            assert run["optimizer"]["learning_rate"] == float(tried["rate"]) == float(best(tried))
