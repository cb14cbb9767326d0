"""Curves by hand, and pictures that are well-formed, bare and the same every time."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loriini.reporting import plots
from loriini.reporting.curves import running_mean, smooth, thin, utilisation

GATES = np.array([[[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]] * 3)


def steps(count: int, dense: int = 0, active: tuple[int, ...] = (0b0001, 0b0011)) -> list[dict[str, object]]:
    """Metrics of `count` steps, the first `dense` of them without experts."""
    routed = {"experts": 4, "active": list(active), "gate_entropy": [0.5, 1.0]}
    steps = [
        {"step": i, "tokens": 100 * i, "loss": 3 - 0.01 * i, **({"experts": 1} if i <= dense else routed)}
        for i in range(1, count + 1)
    ]
    for step in steps[10::10]:
        step |= {"load": [[0.7, 0.3, 0.0, 0.0]] * 3, "activation_norms": [[1.0, 2.0, 3.0, 4.0]] * 3}
    return steps


PICTURES: dict[str, Callable[[], str]] = {
    "loss": lambda: plots.loss_curves({"dense": steps(40), "lory": steps(40, dense=5)}),
    "one loss": lambda: plots.loss_curves({"lory": steps(1)}),
    "difference": lambda: plots.loss_difference(steps(40), steps(30, dense=5)),
    "perplexity": lambda: plots.perplexity_bars({"a": 9.0, "b": 20.0}, {"a": 8.0, "b": 21.0}, "lory"),
    "gates": lambda: plots.shares_by_domain(GATES, ["a", "b"]),
    "utilisation": lambda: plots.utilisation_curves(steps(40, dense=5)),
    "entropy": lambda: plots.entropy_curves(steps(40)[5:], "gate_entropy", "experts"),
    "load": lambda: plots.load_bands(steps(40)),
    "norms": lambda: plots.activation_norms(steps(40)),
    "bars": lambda: plots.bars({"random": 0.1, "similar": 0.4}, ["0.100", "0.400"]),
}


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_pictures_are_well_formed_and_bare(draw: Callable[[], str]) -> None:
    svg = draw()
    root = ElementTree.fromstring(svg)
    assert "viewBox" in root.attrib
    assert "width" not in root.attrib
    assert "currentColor" in svg
    assert not any(word in svg for word in (plots.INK, "<style", "<metadata", "<image", "matplotlib"))


def drawn(picture: Callable[..., str], *data: Any) -> list[Axes]:
    """The axes of a picture before it becomes SVG."""
    figure: Figure = picture.__wrapped__(*data)  # type: ignore[attr-defined]
    return figure.axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_loss_curves_are_the_steps_and_their_mean() -> None:
    (axes,) = drawn(plots.loss_curves, {"dense": steps(40), "lory": steps(40, dense=5)})
    dense, dense_mean, mixture, _, copy = axes.lines
    np.testing.assert_allclose(dense.get_ydata(), 3 - 0.01 * np.arange(1, 41))
    np.testing.assert_allclose(mixture.get_xdata(), 100 * np.arange(1, 41))
    assert dense_mean.get_label() == "dense, 2.60 at the end"
    assert copy.get_xdata() == [500, 500]


def test_a_run_whose_name_begins_with_an_underscore_is_in_the_legend() -> None:
    (axes,) = drawn(plots.loss_curves, {"_mine": steps(40)})
    (label,) = axes.get_legend().get_texts()
    assert label.get_text().strip("\u200b").startswith("_mine, 2.")


def test_a_loss_difference_below_zero_is_the_mixtures_gain() -> None:
    better = [{**step, "loss": step["loss"] - 0.5} for step in steps(30)]
    (axes,) = drawn(plots.loss_difference, steps(40), better)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), -0.5)
    assert len(axes.lines[0].get_ydata()) == 30


def test_bars_are_as_long_as_their_values_and_say_the_change() -> None:
    (axes,) = drawn(plots.perplexity_bars, {"a": 10.0, "b": 20.0}, {"a": 9.0, "b": 21.0}, "lory")
    assert [bar.get_width() for bar in axes.patches] == [10, 20, 9, 21]
    assert texts(axes) == ["10.0", "20.0", "9.0, −10.0 %", "21.0, +5.0 %"]
    assert axes.yaxis_inverted()  # the first on top
    (axes,) = drawn(plots.bars, {"random": 0.1, "similar": 0.4}, ["0.100", "0.400"])
    assert [bar.get_width() for bar in axes.patches] == [0.1, 0.4]
    assert texts(axes) == ["0.100", "0.400"]


def test_a_tile_is_the_logarithm_of_a_share_over_the_even_one() -> None:
    layers = [axes for axes in drawn(plots.shares_by_domain, GATES, ["a", "b"]) if axes.get_title()]
    assert [axes.get_title() for axes in layers] == ["layer 0", "layer 1", "layer 2"]
    for axes in layers:
        (tiles,) = axes.collections
        np.testing.assert_allclose(tiles.get_array(), np.log(4 * GATES[0].ravel()), atol=1e-12)
        corners = [path.get_extents().min for path in tiles.get_paths()]
        assert corners[0] == pytest.approx((0.04, 0.06))  # the first domain's first expert
        assert axes.yaxis_inverted()  # above the second's


def test_an_entropy_is_drawn_as_a_number_of_experts() -> None:
    (axes,) = drawn(plots.entropy_curves, steps(40), "gate_entropy", "experts")
    first, second, mean, even = axes.lines
    np.testing.assert_allclose(first.get_ydata(), np.exp(0.5))
    np.testing.assert_allclose(second.get_ydata(), np.exp(1.0))
    np.testing.assert_allclose(mean.get_ydata(), (np.exp(0.5) + np.exp(1.0)) / 2)
    assert even.get_ydata() == [4, 4]


def test_bands_are_as_high_as_the_load_and_lines_as_the_norms() -> None:
    panels = drawn(plots.load_bands, steps(40))
    assert len(panels) == 3
    for axes in panels:
        edges = [band.get_paths()[0].get_extents().y1 for band in axes.collections]
        np.testing.assert_allclose(edges, [0.7, 1, 1, 1])
    for axes in drawn(plots.activation_norms, steps(40)):
        assert [line.get_ydata()[0] for line in axes.lines] == [1, 2, 3, 4]


def test_names_are_drawn_as_they_are_and_every_time_the_same() -> None:
    names = ["<script>alert(1)</script>", "$x_1$", "日本語"]
    shares = np.repeat(GATES[:, :1], 3, axis=1)
    svg = plots.shares_by_domain(shares, names)
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    assert {plots._short(name, 14) for name in names} <= {text.text for text in texts}
    assert plots.shares_by_domain(shares, names) == svg


def test_utilisation_is_the_union_of_whole_windows() -> None:
    metrics = [{"tokens": i, "experts": 4, "active": [1 << (i % 3), 0]} for i in range(25)]
    tokens, share = utilisation(metrics)
    assert tokens.tolist() == [9, 19]
    assert share.tolist() == [[0.75, 0], [0.75, 0]]
    assert utilisation(metrics[:2])[1].tolist() == [[0.5, 0]]


def test_utilisation_begins_where_experts_do() -> None:
    tokens, share = utilisation(steps(30, dense=15))
    assert tokens.tolist() == [2500]
    assert share.tolist() == [[0.25, 0.5]]


def test_running_mean_passes_over_what_is_not_finite() -> None:
    assert running_mean(np.array([1.0, np.nan, 3.0]), share=1).tolist() == [1, 2, 3]


def test_thin_keeps_both_ends() -> None:
    x = np.arange(1000.0)
    kept, _ = thin(x, x, points=10)
    assert kept[0] == 0
    assert kept[-1] == 999
    assert len(kept) <= 11


def test_a_statistic_is_taken_from_the_steps_that_recorded_it() -> None:
    tokens, load_SLE = smooth(steps(40), "load")
    assert tokens.tolist() == [1100, 2100, 3100]
    np.testing.assert_allclose(load_SLE, np.broadcast_to([0.7, 0.3, 0.0, 0.0], (3, 3, 4)))
