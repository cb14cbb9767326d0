"""A ladder's sizes: halved shapes, steps by width, and what cannot be halved."""

from dataclasses import replace

import pytest

from loriini.common.errors import InputError
from loriini.compare.cells import base_run, make_cells, parse_grid
from loriini.compare.sizes import Ladder, half_width
from loriini.recipes import RECIPES
from loriini.train.config import ModelShape

LARGE = base_run("large")


def test_the_largest_size_is_the_run_itself_and_the_others_half_as_wide() -> None:
    alone = make_cells(("dense", "mixtral"), LARGE, [], {}, seeds=2)
    cells = make_cells(("dense", "mixtral"), LARGE, [], {}, seeds=2, ladder=Ladder(3))
    assert [cell.run for cell in cells if cell.width == 256] == [cell.run for cell in alone]
    assert [(cell.variant, cell.seed) for cell in cells[:4]] == [
        ("dense width=64", 0),
        ("mixtral width=64", 0),
        ("dense width=128", 0),
        ("mixtral width=128", 0),
    ]
    assert [cell.run.steps for cell in cells[:6:2]] == [625, 2500, 10_000]
    equal = make_cells(("dense",), LARGE, [], {}, seeds=1, ladder=Ladder(3, "equal"))
    assert [cell.run.steps for cell in equal] == 3 * [10_000]
    parameters = [
        cell.run.config(512, 0).parameters()[1] - 2 * 512 * cell.run.model.hidden_size for cell in equal
    ]
    assert parameters[1] / parameters[0] == pytest.approx(4, rel=0.02)
    assert parameters[2] / parameters[1] == pytest.approx(4, rel=0.02)


def test_heads_keep_their_width_where_their_number_is_even() -> None:
    assert half_width(ModelShape(64, 176, 2, 4)) == ModelShape(32, 88, 2, 2)
    assert half_width(ModelShape(64, 176, 2, 1)) == ModelShape(32, 88, 2, 1)
    grouped = ModelShape(64, 176, 2, 4, num_key_value_heads=2, head_dim=24)
    assert half_width(grouped) == ModelShape(32, 88, 2, 2, num_key_value_heads=1, head_dim=24)
    single = half_width(half_width(grouped))
    assert (single.num_attention_heads, single.num_key_value_heads, single.head_dim) == (2, 1, 12)
    for name in ("0.3b-lory-8e", "7b-dense", "tiny-aoe"):
        (cell, _) = make_cells(("aoe",), RECIPES[name], [], {}, seeds=1, ladder=Ladder(2, "equal"))
        cell.run.check()


def test_a_grid_is_put_on_every_size() -> None:
    grid = parse_grid(["optimizer.learning_rate=1e-3,2e-3"])
    cells = make_cells(("dense",), LARGE, ["--model.hidden_size=128"], grid, 1, Ladder(2))
    assert [cell.variant for cell in cells] == [
        f"dense width={width} learning_rate={rate}" for width in (64, 128) for rate in ("1e-3", "2e-3")
    ]


@pytest.mark.parametrize(
    ("sizes", "changes", "message"),
    [
        (1, [], "--ladder 1: give 2 sizes or more"),
        (
            7,
            [],
            "--ladder 7: a width of 256 cannot be halved 6 times into multiples of 8; give "
            "--model.hidden_size 512",
        ),
        (
            4,
            ["--steps=300"],
            "--ladder 4: of 300 steps the smallest size gets fewer than 10; give --steps 640",
        ),
    ],
)
def test_what_cannot_be_a_ladder_is_refused(sizes: int, changes: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        make_cells(("dense",), LARGE, changes, {}, 1, Ladder(sizes))
    assert message in str(refused.value)


def test_widths_are_not_in_a_ladders_grid() -> None:
    with pytest.raises(InputError, match=r"--grid model\.hidden_size: the sizes of --ladder are widths"):
        make_cells(("dense",), LARGE, [], {"model.hidden_size": ["64"]}, 1, Ladder(2))
    with pytest.raises(InputError, match="--ladder-tokens some: unknown; choose one of: proportional, equal"):
        Ladder(2, "some")  # type: ignore[arg-type]
    assert replace(Ladder(2), tokens="equal").sizes == 2
