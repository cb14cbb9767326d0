"""The ladder: the baseline tuned at every width, its rate for all, and a page made of the JSON."""

import json
import re
from pathlib import Path

import pytest
from tinybench import results_of, script

ROOT = Path(__file__).parents[2]
DESIGNS = ("dense", "lory")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of two designs at two widths with two rates and two seeds, trained in this process."""
    sizes = ("--width=64", "--sizes=2", "--designs=lory")
    folder = tmp_path_factory.mktemp("ladder")
    return results_of("ladder", folder, "--steps=10", *sizes, "--rates", "1e-4", "8e-3")


def test_all_designs_of_a_width_have_the_best_rate_of_the_baseline(made: Path) -> None:
    found = json.loads(made.read_text())
    assert [(v["design"], v["width"]) for v in found["variants"]] == [
        (design, width) for width in (32, 64) for design in DESIGNS
    ]
    assert all(v["finished_seeds"] == [100, 101] for v in found["variants"])
    rates = {}
    for path in (made.parent / "work" / "runs").glob("*/run.json"):
        run = json.loads(path.read_text())
        assert run["model"]["initializer_range"] == 0.64 * run["model"]["hidden_size"] ** -0.5
        rates.setdefault((run["name"], run["model"]["hidden_size"]), []).append(
            run["optimizer"]["learning_rate"]
        )
    for width, tried in found["tried"].items():
        assert tried["rate"] == min(tried["training_loss"], key=tried["training_loss"].get)
        best = float(tried["rate"])
        assert rates["lory", int(width)] == [best, best]  # the two seeds
        own = [*map(float, tried["training_loss"]), best, best]  # every rate with seed 0, and the two seeds
        assert sorted(rates["dense", int(width)]) == sorted(own)


def test_the_page_says_what_was_trained_and_what_it_showed(made: Path, tmp_path: Path) -> None:
    page = script("ladder_page")
    text = page.ladder_page(made)
    assert "| model | widths 32 and 64, 4 layers, " in text
    assert "| seeds | 2 |" in text
    assert "| initial weights | standard deviation 0.64/√width |" in text
    assert "rises for 20 % of the steps |" in text
    assert re.search(
        r"^- lory: at the compute of the largest size of both its fitted loss is", text, re.MULTILINE
    )
    for row in ("dense width=32", "lory width=64"):
        assert f"| {row} |" in text
    assert "--width 64" in text
    at_edge = [f"width {w}" for w, tried in json.loads(made.read_text())["tried"].items() if tried["edge"]]
    assert script("pages").edges(at_edge) in text
    assert all(svg.startswith("<svg") for svg in page.ladder_pictures(made).values())
    assert "There are no results yet" in page.ladder_page(tmp_path / "none.json")
    assert not page.ladder_pictures(tmp_path / "none.json")


def test_wider_models_that_are_not_clearly_better_are_named() -> None:
    page = script("ladder_page")
    falling = {
        "name": "dense",
        "widths": [32, 64, 128],
        "loss": [{"low": x - 0.1, "mean": x, "high": x + 0.1} for x in (5.0, 4.0, 3.0)],
    }
    assert page.too_short([falling]) == []
    last = {"low": 3.7, "mean": 3.85, "high": 4.0}
    unclear = {**falling, "name": "lory", "loss": [*falling["loss"][:2], last]}
    (said,) = page.too_short([falling, unclear])
    assert said.startswith("Intervals overlap, which is no test of a difference: lory from width 64 to 128. ")


def test_the_published_page_is_made_from_the_committed_results() -> None:
    made = script("ladder_page").ladder_page(ROOT / "benchmarks" / "results" / "ladder.json")
    assert (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8") == made
