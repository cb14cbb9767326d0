"""A ladder: the same runs at other widths, and a line fitted to what was measured."""

import math
from dataclasses import replace

import numpy as np
import pytest

from loriini.common.errors import InputError
from loriini.compare.fit import points_and_line, power_law
from loriini.compare.grid import at_width, make_trainings
from loriini.compare.settings import parse_grid, parse_widths
from loriini.recipes import find_recipe
from loriini.train.config import ModelShape, TrainConfig
from runs import tiny_run

LARGE = find_recipe("large")


def of_shape(*sizes: int, **more: int) -> TrainConfig:
    return replace(tiny_run(), model=ModelShape(*sizes, **more))


def test_every_design_is_trained_at_every_width() -> None:
    alone = make_trainings(("dense", "mixtral"), LARGE, [], {}, seeds=2)
    cells = make_trainings(("dense", "mixtral"), LARGE, [], {}, 2, parse_widths("256,64,128"))
    assert [cell.run for cell in cells if cell.width == 256] == [cell.run for cell in alone]
    assert [(cell.variant, cell.seed) for cell in cells[:4]] == [
        ("dense width=64", 0),
        ("mixtral width=64", 0),
        ("dense width=128", 0),
        ("mixtral width=128", 0),
    ]
    assert {cell.run.steps for cell in cells} == {LARGE.steps}
    grid = parse_grid(["optimizer.learning_rate=1e-3,2e-3"])
    cells = make_trainings(("dense",), LARGE, [], grid, 1, (64, 128))
    assert [cell.variant for cell in cells] == [
        f"dense width={width} learning_rate={rate}" for width in (64, 128) for rate in ("1e-3", "2e-3")
    ]


def test_heads_keep_their_width_where_a_whole_number_fits() -> None:
    assert at_width(of_shape(64, 176, 2, 4), 32).model == ModelShape(32, 88, 2, 2)
    assert at_width(of_shape(64, 176, 2, 1), 32).model == ModelShape(32, 88, 2, 1)
    grouped = of_shape(64, 176, 2, 4, num_key_value_heads=2, head_dim=24)
    assert at_width(grouped, 32).model == ModelShape(32, 88, 2, 2, num_key_value_heads=1, head_dim=24)
    single = at_width(grouped, 16).model
    assert (single.num_attention_heads, single.num_key_value_heads, single.head_dim) == (4, 2, 6)
    for name in ("0.3b-lory-8e", "7b-dense", "tiny-aoe"):
        for cell in make_trainings(("aoe",), find_recipe(name), [], {}, 1, (64, 128)):
            cell.run.check()


@pytest.mark.parametrize("text", ["64", "64,64", "64,", "64,100", "64,x", "0,64"])
def test_what_is_no_list_of_widths_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--ladder"):
        parse_widths(text)


def test_widths_are_in_no_grid_and_in_no_run_that_starts_from_a_model() -> None:
    with pytest.raises(InputError, match=r"--grid model\.hidden_size"):
        make_trainings(("dense",), LARGE, [], {"model.hidden_size": ["64"]}, 1, (64, 128))
    started = replace(LARGE, init="ORG/NAME")
    with pytest.raises(InputError, match="--ladder"):
        make_trainings(("dense",), started, [], {}, 1, (64, 128))


def test_a_power_law_is_found_in_its_points() -> None:
    flops_SW = np.array([[1e12, 1e13, 1e15]] * 2)
    found = power_law(flops_SW, 7.0 * flops_SW**-0.05)
    assert found["a"] == pytest.approx(7)
    assert found["b"] == pytest.approx({"mean": 0.05, "low": 0.05, "high": 0.05})
    apart = power_law(flops_SW, np.stack([flops_SW[0] ** -0.04, flops_SW[1] ** -0.06]))["b"]
    assert apart["mean"] == pytest.approx(0.05)
    assert apart["high"] - apart["mean"] == pytest.approx(12.7062 * 0.01, rel=1e-4)


def test_the_points_of_a_ladder_are_of_seeds_that_every_size_has() -> None:
    def cell(width: int, seed: int, loss: float) -> dict[str, object]:
        scored = {"perplexity": {"a": math.exp(loss), "b": math.exp(loss)}}
        return {"name": f"dense {width}", "seed": seed, "state": "finished", "flops": width * 1e9, **scored}

    variants = [{"name": f"dense {width}", "width": width} for width in (8, 16, 32)]
    cells = [cell(8, 0, 3.0), cell(8, 1, 4.0), cell(16, 1, 2.0), {**cell(16, 0, 1.0), "state": "failed"}]
    found = points_and_line(variants, cells)  # nothing of width 32
    assert (found["widths"], found["seeds"], found["flops"]) == ([8, 16], [1], [8e9, 16e9])
    assert [loss["mean"] for loss in found["loss"]] == pytest.approx([4.0, 2.0])
    assert found["line"]["b"]["mean"] == pytest.approx(1)
    assert "line" not in points_and_line(variants[:1], cells)
    assert not points_and_line(variants[2:], cells)
