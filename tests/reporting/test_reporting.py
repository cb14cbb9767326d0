"""Curves by hand, pictures that are well-formed, bare and the same every time, and numbers as text."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loriini.reporting import plots
from loriini.reporting.curves import running_mean, smooth, thin, utilisation
from loriini.reporting.page import table
from loriini.reporting.plots import draw_curves, legend
from loriini.reporting.wording import bounds, minus, percent

GATES = np.array([[[0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]]] * 3)


def steps(count: int, dense: int = 0, active: tuple[int, ...] = (0b0001, 0b0011)) -> list[dict[str, Any]]:
    """Metrics of `count` steps, the first `dense` of them without experts."""
    routed = {"experts": 4, "active": list(active), "gate_entropy": [0.5, 1.0]}
    steps = [
        {"step": i, "tokens": 100 * i, "loss": 3 - 0.01 * i, **({"experts": 1} if i <= dense else routed)}
        for i in range(1, count + 1)
    ]
    for step in steps[10::10]:
        step |= {"load": [[0.7, 0.3, 0.0, 0.0]] * 3}
    return steps


PICTURES: dict[str, Callable[[], str]] = {
    "loss": lambda: plots.loss_curve("lory", steps(40, dense=5)),
    "one loss": lambda: plots.loss_curve("lory", steps(1)),
    "gates": lambda: plots.shares_by_domain(GATES, ["a", "b"]),
    "entropy": lambda: plots.entropy_curves(steps(40)[5:], "gate_entropy", "experts"),
    "load": lambda: plots.load_bands(steps(40)),
    "lengths": lambda: plots.histogram_bars({"counts": [1, 2], "edges": [4, 8, 16]}, "a", "b"),
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


def test_a_loss_curve_is_the_steps_and_their_mean() -> None:
    (axes,) = drawn(plots.loss_curve, "_mine", steps(40, dense=5))
    loss, mean, copy = axes.lines
    np.testing.assert_allclose(loss.get_ydata(), 3 - 0.01 * np.arange(1, 41))
    assert str(mean.get_label()).strip("\u200b") == "_mine, 2.60 at the end"
    assert copy.get_xdata() == [500, 500]


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


def test_bands_are_as_high_as_the_load() -> None:
    for axes in drawn(plots.load_bands, steps(40)):
        edges = [band.get_paths()[0].get_extents().y1 for band in axes.collections]
        np.testing.assert_allclose(edges, [0.7, 1, 1, 1])


def test_names_are_drawn_as_they_are_and_every_time_the_same() -> None:
    names = ["<script>alert(1)</script>", "$x_1$", "日本語"]
    shares = np.repeat(GATES[:, :1], 3, axis=1)
    svg = plots.shares_by_domain(shares, names)
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    assert {"<script>alert…", *names[1:]} <= {text.text for text in texts}
    assert plots.shares_by_domain(shares, names) == svg


def test_utilisation_is_the_union_of_whole_windows_from_where_experts_begin() -> None:
    metrics = [{"tokens": i, "experts": 4, "active": [1 << (i % 3), 0]} for i in range(25)]
    tokens, share = utilisation(metrics)
    assert tokens.tolist() == [9, 19]
    assert share.tolist() == [[0.75, 0], [0.75, 0]]
    assert utilisation(metrics[:2])[1].tolist() == [[0.5, 0]]
    tokens, share = utilisation(steps(30, dense=15))
    assert tokens.tolist() == [2500]
    assert share.tolist() == [[0.25, 0.5]]


def test_curves_pass_over_what_is_not_finite_or_not_recorded() -> None:
    assert running_mean(np.array([1.0, np.nan, 3.0]), share=1).tolist() == [1, 2, 3]
    x = np.arange(1000.0)
    kept, _ = thin(x, x, points=10)
    assert (kept[0], kept[-1]) == (0, 999)
    assert len(kept) <= 11
    tokens, load_SLE = smooth(steps(40), "load")
    assert tokens.tolist() == [1100, 2100, 3100]
    np.testing.assert_allclose(load_SLE, np.broadcast_to([0.7, 0.3, 0.0, 0.0], (3, 3, 4)))


def test_many_names_make_a_figure_taller_and_leave_the_axes_their_room() -> None:
    """A plot without room for its axes is a warning, and so an error; an underscore hides no name."""
    heights = []
    for count in (8, 38):
        figure, names = Figure(figsize=(4.4, 3.2), layout="constrained"), [f"_{i}" for i in range(count)]
        draw_curves(figure.subplots(), {name: {"x": [0, 1], "y": [2, 1]} for name in names})
        legend(figure, figure.axes[0])
        figure.draw_without_rendering()
        heights.append(figure.axes[0].get_window_extent().height)
        assert [text.get_text().strip("\u200b") for text in figure.legends[0].get_texts()] == names
    assert min(heights) > 0.8 * heights[0]


def test_changes_have_signs() -> None:
    assert [percent(x) for x in (-0.038, -0.0004, -0.0)] == ["−3.8 %", "−0.0 %", "+0.0 %"]
    assert (bounds(-0.05, 0.026), bounds(-0.0, 0.0)) == ("−5.0 to +2.6 %", "+0.0 to +0.0 %")
    assert minus("-0.031 (-0.050 to -0.012)") == "−0.031 (−0.050 to −0.012)"


def test_a_sentence_in_a_table_wraps_and_a_number_does_not() -> None:
    made = table(["", "said", "number"], [["a", "word " * 30, "1.5 (1.2 to 1.8)"]])
    assert made.count('<td class="words">word') == made.count("<td>1.5") == 1
