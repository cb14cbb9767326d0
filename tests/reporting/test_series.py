"""Lines that are told apart: legends of any number of names."""

from matplotlib.figure import Figure

from loriini.reporting.series import draw_curves, legend


def with_legend(names: int) -> Figure:
    """A drawn figure of so many lines; a plot without room for its axes is a warning, and so an error."""
    figure = Figure(figsize=(4.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for i in range(names):
        axes.plot([0, 1], label=f"a design of number {i}")
    legend(figure, axes)
    figure.draw_without_rendering()
    return figure


def test_many_names_make_a_figure_taller_and_leave_the_axes_their_room() -> None:
    heights = {names: with_legend(names).axes[0].get_window_extent().height for names in (3, 8, 19, 38)}
    assert min(heights.values()) > 0.8 * heights[8]
    assert with_legend(3).get_figheight() == 3.2


def test_names_that_begin_with_an_underscore_are_in_the_legend() -> None:
    figure = Figure()
    axes = figure.subplots()
    draw_curves(axes, {"_mine": {"x": [0, 1], "y": [2, 1]}})
    legend(figure, axes)
    assert [text.get_text().strip("\u200b") for text in figure.legends[0].get_texts()] == ["_mine"]
