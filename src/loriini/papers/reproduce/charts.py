"""Charts as values, which are stored in results and drawn from them: lines, dots with intervals, tiles."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from loriini.papers.reproduce.quantities import Values, rounded, rounded_interval
from loriini.reporting.curves import seed_band
from loriini.reporting.plots import COLORS, draw_curves, legend, one_plot, picture, shares_by_domain

Chart = dict[str, Any]
"""`kind` (lines, dots or tiles), `title`, and `x`, `y` and `series`, or `panels` and `rows`."""

SMOOTHING = 12
"""Curves are running means over a window of 1/SMOOTHING of their points."""


def lines(title: str, x: str, y: str, series: Mapping[str, Mapping[str, Any]], loss: bool = False) -> Chart:
    """Lines over a common axis, each {"x", "y", "low", "high"}; `loss` cuts off the initial drop."""
    return {"kind": "lines", "title": title, "x": x, "y": y, "series": dict(series), "loss": loss}


def dots(title: str, x: str, series: Mapping[str, Mapping[str, Values]]) -> Chart:
    """For every series and category, the mean of a quantity and its interval over seeds."""
    estimated = {
        name: {category: rounded_interval(values) for category, values in of_series.items() if values}
        for name, of_series in series.items()
    }
    return {"kind": "dots", "title": title, "x": x, "series": {n: s for n, s in estimated.items() if s}}


def tiles(title: str, panels: Sequence[Any], rows: Sequence[str]) -> Chart:
    """A matrix (rows, experts) of shares for each layer, coloured relative to an even share."""
    return {"kind": "tiles", "title": title, "panels": list(panels), "rows": list(rows)}


def band(
    x: Mapping[int, Sequence[float]] | Sequence[float],
    y: Mapping[int, Sequence[float]],
    smoothing: int | None = None,
) -> dict[str, list[float | None]]:
    """A line: the mean over seeds of curves by seed, and the lowest and highest seed."""
    points = min(map(len, y.values()))
    places = next(iter(x.values())) if isinstance(x, Mapping) else x
    values = {"x": places[:points], **seed_band([curve[:points] for curve in y.values()], smoothing)}
    return {name: [rounded(float(v)) for v in column] for name, column in values.items()}


def draw(chart: Chart) -> str:
    """A chart as SVG."""
    if chart["kind"] == "tiles":
        return shares_by_domain(chart["panels"], chart["rows"])
    return draw_lines(chart) if chart["kind"] == "lines" else draw_dots(chart)


@picture
def draw_lines(chart: Chart) -> Figure:
    """A line for each series, and a band from its lowest to its highest seed."""
    figure, axes = one_plot(3.2)
    draw_curves(axes, chart["series"], falling=chart["loss"])
    axes.set_title(chart["title"])
    axes.set_xlabel(chart["x"])
    axes.set_ylabel(chart["y"])
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    if len(chart["series"]) > 1:
        legend(figure, axes, 54, fontsize=8.5)
    return figure


@picture
def draw_dots(chart: Chart) -> Figure:
    """A dot with its interval for each series, grouped by category from the top.

    With a single category, series are named on the axis: there may be more of them than colours.
    """
    series = chart["series"]
    categories = list(dict.fromkeys(name for of_series in series.values() for name in of_series))
    if len(categories) == 1:
        (only,) = categories
        series, categories = {only: {name: interval[only] for name, interval in series.items()}}, list(series)
    height = 1.0 + 0.12 * len(categories) * (len(series) + 1.2) + 0.1 * len(series)
    figure, axes = one_plot(height)
    step = 0.8 / max(1, len(series))
    for i, (name, of_series) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        axes.plot([], [], "o", color=color, markersize=4.5, label=name)
        for category, interval in of_series.items():
            place = categories.index(category) + step * (i - (len(series) - 1) / 2)
            axes.plot([interval["mean"]], [place], "o", color=color, markersize=4.5)
            if interval["low"] is not None:
                axes.hlines(place, interval["low"], interval["high"], color=color, linewidth=1.2)
    axes.set_yticks(range(len(categories)), categories)
    axes.set_ylim(len(categories) - 0.5, -0.5)
    axes.set_title(chart["title"])
    axes.set_xlabel(chart["x"])
    axes.grid(axis="x", alpha=0.15)
    axes.grid(axis="y", visible=False)
    if len(series) > 1:
        legend(figure, axes, 54, fontsize=8.5)
    return figure
