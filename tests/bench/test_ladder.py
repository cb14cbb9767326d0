"""The ladder: the baseline is tuned at every width, and its rate is that of all designs."""

import json
from pathlib import Path

import pytest
from tinybench import results_of

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
