"""Power laws: recovered where they hold, undecided where the measurements are, and drawn into the report."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import linregress

from cli.calls import assert_refused, call
from compare.conftest import Compared, compare_here, overrides
from loriini.compare.ladder import BENT, answer, any_gain
from loriini.compare.laws import (
    LadderPoints,
    fit_with_floor,
    law_with_floor,
    measure_ladder,
    power_law,
    trend,
)
from loriini.compare.lines import Lines, bends, lines_of
from loriini.compare.seeds import t_factor

FLOPS = np.array([1e12, 1.6e13, 2.56e14, 4.1e15])
WIDTHS = (32, 64, 128, 256)


def measured(
    name: str, a: float, b: float, noise: Sequence[float] = (0.0,), flops: Any = FLOPS, floor: float = 0.0
) -> LadderPoints:
    """Losses on a law; each seed's, in log loss, is shifted by its noise, up and down in turn."""
    signs = np.resize([1.0, -1.0], len(flops))
    loss = np.stack([np.log(floor + a * flops**-b) + shift * signs for shift in noise])
    shape = np.stack([np.log(flops)] * len(noise))
    return LadderPoints(name, WIDTHS[: len(flops)], tuple(range(len(noise))), shape, loss)


def test_a_law_is_recovered_with_and_without_a_floor() -> None:
    law = power_law(measured("dense", 20.0, 0.05))
    assert (law["a"], law["b"]["mean"]) == (pytest.approx(20.0), pytest.approx(0.05))
    assert law["residual"] == pytest.approx(0, abs=1e-9)
    x, y = np.log(FLOPS), np.log(1.7 + 900 * FLOPS**-0.2)
    a, b, c = fit_with_floor(x, y)
    assert (a, b, c) == (
        pytest.approx(900, rel=1e-2),
        pytest.approx(0.2, rel=1e-3),
        pytest.approx(1.7, rel=1e-3),
    )


def test_a_law_with_a_floor_is_in_the_middle_of_its_intervals() -> None:
    """Seeds of different floors: the fit of their mean is not the mean of their fits."""
    parts = [measured("dense", 900.0, 0.2, floor=floor) for floor in (1.0, 1.7, 3.0)]
    flops_SW, loss_SW = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("flops_SW", "loss_SW")
    )
    law = law_with_floor(LadderPoints("dense", WIDTHS, (0, 1, 2), flops_SW, loss_SW))
    assert law is not None
    for name, expected in (("b", 0.2), ("c", 1.9)):
        assert law[name]["mean"] == pytest.approx(expected, rel=1e-2)
        assert law[name]["mean"] == pytest.approx((law[name]["low"] + law[name]["high"]) / 2)
    assert law["a"] == pytest.approx(900, rel=2e-2)
    assert law["residual"] == pytest.approx(0, abs=1e-5)


def test_a_loss_that_does_not_fall_has_no_law_with_a_floor() -> None:
    x_SW = np.stack([np.log(FLOPS)] * 2)
    rising = LadderPoints("dense", WIDTHS, (0, 1), x_SW, np.log(5 + 0.01 * x_SW))
    assert law_with_floor(rising) is None
    falling = np.log(2 + 900 * np.exp(-0.2 * x_SW[:1]))
    mixed = np.concatenate([falling, rising.loss_SW[1:]])
    assert law_with_floor(LadderPoints("dense", WIDTHS, (0, 1), x_SW, mixed)) is None
    assert law_with_floor(LadderPoints("dense", WIDTHS, (0,), x_SW[:1], falling)) is not None


def test_intervals_are_those_of_the_seeds_and_of_the_regression() -> None:
    rng = np.random.default_rng(0)
    x_SW = np.stack([np.log(FLOPS)] * 3)
    y_SW = 3 - 0.05 * x_SW + rng.normal(0, 0.01, x_SW.shape)
    lines = lines_of(x_SW, y_SW)
    slopes = np.array([linregress(x, y).slope for x, y in zip(x_SW, y_SW, strict=True)])
    over_seeds = t_factor(3) * slopes.std(ddof=1)
    one = linregress(x_SW[0], y_SW.mean(0))
    over_sizes = 4.302653 * one.stderr  # two degrees of freedom
    found = lines.weighted_sum(0.0, 1.0)
    assert found.mean == pytest.approx(one.slope)
    assert found.high - found.mean == pytest.approx(max(over_seeds, over_sizes), rel=1e-5)
    two = Lines(0.0, np.array([1.0]), np.array([2.0]), np.zeros(2), 1.0)
    assert math.isnan(two.weighted_sum(1.0, 1.0).low)  # one seed and two sizes


def test_a_gain_that_shrinks_vanishes_where_the_laws_cross() -> None:
    crossing = 1e18
    dense = measured("dense", 20.0, 0.05, (0.001, -0.001, 0.0))
    lory = measured("lory", 20.0 * crossing**-0.01, 0.04, (0.0011, -0.0009, 0.0))
    compared = trend(lory, dense)
    assert compared is not None
    found = compared.to_dict()
    assert found["at_largest"]["mean"] == pytest.approx((FLOPS[-1] / crossing) ** 0.01 - 1, rel=0.01)
    assert found["per_tenfold"]["mean"] == pytest.approx(10**0.01 - 1, rel=0.01)
    assert found["vanishes"]["flops"] == pytest.approx(crossing, rel=0.02)
    assert found["vanishes"]["low"] < crossing < found["vanishes"]["high"]
    assert found["doubles"]["flops"] is None
    said = answer({"name": "lory", "trend": found}, "dense")
    assert "the gain shrinks and vanishes at 1e+18 FLOPs" in said


def test_a_gain_that_grows_doubles_and_is_looked_for_no_further_than_the_ladder_is_long() -> None:
    dense = measured("dense", 20.0, 0.05)
    flops = FLOPS * 1.3  # the design costs more at every size
    lory = measured("lory", 20.0 * 1e14**0.002, 0.052, flops=flops)
    compared = trend(lory, dense)
    assert compared is not None
    found = compared.to_dict()
    at = 0.002 * math.log(FLOPS[-1] / 1e14)
    assert found["at_largest"]["mean"] == pytest.approx(math.expm1(-at))
    assert found["doubles"]["flops"] == pytest.approx(FLOPS[-1] ** 2 / 1e14)
    assert found["reach"] == pytest.approx(FLOPS[-1] ** 2 / FLOPS[0])
    slow = trend(measured("lory", 19.0, 0.0501), dense)
    assert slow is not None
    assert slow.to_dict()["doubles"]["flops"] is None
    assert "doubles nowhere up to" in answer({"name": "lory", "trend": slow.to_dict()}, "dense")


def test_moving_a_law_to_other_compute_widens_its_interval() -> None:
    """Two designs with one curve of loss over compute, which is no line; one spends more at every size."""
    dense = measured("dense", 900.0, 0.2, floor=1.7)
    compared = trend(measured("lory", 900.0, 0.2, flops=FLOPS * 2, floor=1.7), dense)
    assert compared is not None
    found = compared.lines.at(compared.last)
    assert found.low < 0 < found.high
    alike = replace(compared.lines, moved=0.0).at(compared.last)
    assert alike.low > 0  # what both laws miss alike cancels in their difference


def test_a_design_without_the_largest_size_is_judged_at_the_largest_of_both() -> None:
    dense, lory = measured("dense", 20.0, 0.05), measured("lory", 21.0, 0.052, flops=FLOPS[:3])
    compared = trend(lory, dense)
    assert compared is not None
    assert compared.last == pytest.approx(math.log(FLOPS[2]))
    gain = 21.0 * FLOPS[2] ** -0.052 / (20.0 * FLOPS[2] ** -0.05) - 1
    assert compared.to_dict()["at_largest"]["mean"] == pytest.approx(gain)


def test_a_crossing_between_two_looks_is_possible() -> None:
    found = trend(measured("lory", 20.0 * 1e18**-0.01, 0.04), measured("dense", 20.0, 0.05))
    assert found is not None
    assert found.to_dict()["vanishes"]["possible"]


def test_nothing_is_read_from_a_law_whose_points_bend() -> None:
    """Two laws with one floor never cross; the power laws of their points do, by their intervals."""
    noise = (0.0011, -0.0009, 0.0)
    dense, lory = (
        measured(name, a, 0.2, noise, floor=1.7) for name, a in (("dense", 900.0), ("lory", 800.0))
    )
    compared = trend(lory, dense)
    assert compared is not None
    found = compared.to_dict()
    assert (found["bends"], found["vanishes"], found["doubles"]) == (True, None, None)
    assert answer({"name": "lory", "trend": found}, "dense") == f"lory: {BENT.format('dense')}."
    assert not any_gain([{"name": "dense"}, {"name": "lory", "trend": found}])
    as_if_straight = replace(compared, bends=False).to_dict()
    assert "the gain shrinks and vanishes at" in answer({"name": "lory", "trend": as_if_straight}, "dense")
    assert any_gain([{"name": "lory", "trend": as_if_straight}])


@pytest.mark.parametrize("bent", ["lory", "dense", "difference"])
def test_one_bent_curve_is_enough(bent: str) -> None:
    dense, lory = (measured(name, 20.0, 0.05, (0.001, -0.001, 0.0)) for name in ("dense", "lory"))
    bow = 0.01 * np.array([1.0, -1.0, -1.0, 1.0])
    if bent == "difference":  # the seeds' scatter hides it in each curve alone
        scatter_SW = np.outer([1.0, 0.0, -1.0], 4 * bow)
        dense = replace(dense, loss_SW=dense.loss_SW + scatter_SW)
        lory = replace(lory, loss_SW=lory.loss_SW + scatter_SW + bow)
        assert not any(bends(each.flops_SW, each.loss_SW) for each in (dense, lory))
    elif bent == "lory":
        lory = replace(lory, loss_SW=lory.loss_SW + bow)
    else:
        dense = replace(dense, loss_SW=dense.loss_SW + bow)
    compared = trend(lory, dense)
    assert compared is not None
    assert compared.bends


def test_chance_decides_a_bend_no_more_often_than_it_may() -> None:
    """Straight points are said to bend in a third of 5 % of the cases, and bent ones nearly always."""
    rng = np.random.default_rng(0)
    x_SW = np.stack([np.log(FLOPS)] * 3)
    straight_SW = 3 - 0.05 * x_SW
    heights_S1 = rng.normal(0, 0.1, (3, 1))  # a seed may lie higher at all sizes
    noises = rng.normal(0, 0.01, (400, *x_SW.shape))
    called = [bends(x_SW, straight_SW + heights_S1 + noise_SW) for noise_SW in noises]
    assert 0.005 < np.mean(called) < 0.035
    bow = 0.02 * np.array([1.0, -1.0, -1.0, 1.0])
    assert np.mean([bends(x_SW, straight_SW + heights_S1 + noise + bow) for noise in noises]) > 0.9


def test_too_few_points_and_exact_lines_do_not_bend() -> None:
    x, bow = np.log(FLOPS), np.array([0.3, -0.2, -0.2, 0.3])
    three_SW = np.stack([x, x, x])
    assert not any(bends(three_SW, 3 - slope * three_SW) for slope in np.linspace(0.01, 0.2, 50))  # rounding
    assert bends(x[None], (3 - 0.05 * x + bow)[None])
    assert not bends(x[None, :3], (3 - 0.05 * x + bow)[None, :3])
    two_SW = np.stack([x, x])
    noise_SW = np.array([[0.001, 0.0, 0.0, 0.0], [0.0, 0.001, 0.0, 0.0]])
    assert bends(two_SW[:, :3], (3 - 0.05 * two_SW + bow + noise_SW)[:, :3])
    assert not bends(two_SW[:, :2], (3 - 0.05 * two_SW + bow + noise_SW)[:, :2])


def test_noise_leaves_the_question_open() -> None:
    dense = measured("dense", 20.0, 0.05, (0.02, -0.03, 0.01))
    lory = measured("lory", 19.8, 0.0501, (-0.03, 0.02, 0.02))
    compared = trend(lory, dense)
    assert compared is not None
    said = answer({"name": "lory", "trend": compared.to_dict()}, "dense")
    assert "which is no clear difference" in said
    assert "the interval does not say whether it grows or shrinks" in said
    falling = {**compared.to_dict(), "per_tenfold": {"mean": -0.01, "low": -0.02, "high": -0.001}}
    assert answer({"name": "lory", "trend": falling}, "dense").endswith("−0.10 %), in favour of lory.")
    alone = trend(
        measured("lory", 19.0, 0.05, flops=FLOPS[:2]), measured("dense", 20.0, 0.05, flops=FLOPS[:2])
    )
    assert alone is not None
    assert "one seed and two sizes give no interval" in answer(
        {"name": "lory", "trend": alone.to_dict()}, "dense"
    )


def variant(design: str, width: int, rate: str = "", chosen: bool = True) -> dict[str, Any]:
    settings = {"optimizer.learning_rate": rate} if rate else {}
    name = f"{design} width={width} {rate}".strip()
    one = {"name": name, "design": design, "width": width, "settings": settings}
    return {**one, "chosen": chosen, "causality": "strict"}


def cell(of: dict[str, Any], seed: int, perplexity: float | None) -> dict[str, Any]:
    state = "failed" if perplexity is None else "finished"
    return {
        "name": of["name"],
        "seed": seed,
        "state": state,
        "flops": of["width"] ** 4.0,
        **({} if perplexity is None else {"perplexity": {"text": perplexity}}),
    }


def test_what_is_not_finished_or_not_chosen_takes_no_part() -> None:
    variants = [
        variant("dense", width, rate, rate == "1e-3") for width in (32, 64) for rate in ("1e-3", "2e-3")
    ]
    variants += [variant("lory", 32), variant("lory", 64), {**variant("smear", 32), "causality": "none"}]
    values = {32: (9.0, 8.0), 64: (5.0, None)}
    cells = [cell(v, seed, values[v["width"]][seed]) for v in variants for seed in (0, 1)]
    found = measure_ladder(variants, cells)
    assert (found["baseline"], [design["name"] for design in found["designs"]]) == (
        "dense",
        ["dense", "lory"],
    )
    dense, lory = found["designs"]
    assert dense["variants"] == ["dense width=32 1e-3", "dense width=64 1e-3"]
    assert (dense["widths"], dense["seeds"]) == ([32, 64], [0])
    assert dense["loss"][0]["mean"] == pytest.approx(math.log(9.0))
    assert "law_with_floor" not in dense
    assert lory["trend"]["at_largest"]["mean"] == pytest.approx(0)
    gone = measure_ladder(variants, [c for c in cells if not c["name"].startswith("dense")])
    assert "flops" not in gone["designs"][0]
    assert "trend" not in gone["designs"][1]


def test_every_domain_counts_alike_in_the_loss() -> None:
    """The mean over domains of nats a token, in which the hardest domain does not rule."""
    variants = [variant("dense", width) for width in (32, 64)]
    cells = [{**cell(v, 0, 9.0), "perplexity": {"easy": math.e, "hard": math.e**5}} for v in variants]
    cells += [{**cell(variants[0], 1, 9.0), "perplexity": {"easy": 1.0, "hard": math.inf}}]
    (dense,) = measure_ladder(variants, cells)["designs"]
    assert dense["seeds"] == [0]
    assert [loss["mean"] for loss in dense["loss"]] == pytest.approx([3.0, 3.0])


@pytest.fixture(scope="module")
def ladder(compared: Compared, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    out = tmp_path_factory.mktemp("ladder")
    options = ("--ladder", 2, "--ladder-tokens", "equal", "--seeds", 2)
    compare_here("dense", "lory", "smear", *options, "--out", out, *compared.arguments)
    return Compared(compared.arguments, compared.corpus, compared.heldout, out)


def test_the_largest_size_is_the_comparison_without_a_ladder(ladder: Compared, compared: Compared) -> None:
    results, alone = ladder.results, compared.results
    assert results["ladder"]["widths"] == [16, 32]
    assert (results["baseline"], results["ladder_tokens"]) == ("dense width=32", "equal")
    assert ladder.of("lory width=32")["difference"] == compared.of("lory")["difference"]
    assert ladder.of("lory width=32")["equal"]["tokens"] == compared.of("lory")["equal"]["tokens"]
    assert "difference" in ladder.of("lory width=16")
    folders = {c["folder"].rpartition("-")[2] for c in alone["cells"]}
    assert folders <= {c["folder"].rpartition("-")[2] for c in results["cells"]}  # the same settings
    assert not any("differ in" in remark for remark in results["remarks"])
    json.dumps(results, allow_nan=False)


def test_the_report_shows_the_ladder(ladder: Compared) -> None:
    part = {text.split("</h2>")[0]: text for text in ladder.page.split("<h2>")[1:]}
    assert "held-out loss, nats a token" in part["Ladder"]
    assert part["Ladder"].count("<svg") == 2
    assert "mathdefault" not in part["Ladder"]
    assert "lory width=16" in part["Ladder"]
    assert "smear" not in part["Ladder"]
    assert "width=16" not in part["Perplexity"]
    (lory,) = (d for d in ladder.results["ladder"]["designs"] if d["name"] == "lory")
    assert answer(lory, "dense").split(":")[0] in part["Ladder"]
    assert "They are 2 sizes, 16 and 32 wide" in ladder.page


def test_a_dry_run_lists_every_size_with_its_cost(
    ladder: Compared, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("--ladder", 2, "--seeds", 1, "--out", tmp_path, "--dry-run", *ladder.arguments)
    ended = call(capsys, "compare", "dense", *arguments, "--steps", 40)
    _, *rows = [line.split() for line in ended.out.splitlines()]
    assert [(row[1], row[5]) for row in rows] == [("width=16", "640"), ("width=32", "2,560")]
    assert float(rows[0][6]) < float(rows[1][6]) / 4


def test_a_wrong_ladder_is_refused_in_a_line(
    ladder: Compared, compared: Compared, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    heldout = ("--corpus", compared.corpus, "--heldout", compared.heldout, "--out", tmp_path, *overrides())
    for options, message in (
        (("--ladder", 1), "--ladder 1: give 2 sizes or more"),
        (("--ladder", 9), "--ladder 9: a width of 32 cannot be halved 8 times"),
        (("--ladder", "two"), "--ladder: invalid int value: 'two'"),
        (("--ladder-tokens", "equal"), "--ladder-tokens needs --ladder N; give that too"),
        (("--ladder", 2, "--ladder-tokens", "x"), "--ladder-tokens x: unknown; choose one of"),
    ):
        assert_refused(call(capsys, "compare", "dense", *options, *heldout), message)
    folder = compared.folder("dense", 0)
    for option in (("--ladder", 2), ("--ladder-tokens", "equal")):
        ended = call(capsys, "compare", folder, *option, "--out", tmp_path)
        assert_refused(ended, f"{option[0]}: these runs are trained already; leave it out")
