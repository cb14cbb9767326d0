"""Plots of a comparison, in the style of `reporting.plots`."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    EngFormatter,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    StrMethodFormatter,
)

from loriini.compare.measures import Row, Rows
from loriini.evaluate.intervals import OVERALL
from loriini.reporting.curves import seed_band
from loriini.reporting.plots import COLORS, DASHES, INK, draw_curves, in_legend, legend, one_plot, picture

AXIS_TITLES = {"tokens": "tokens of training", "flops": "training FLOPs", "seconds": "seconds of training"}
TITLE_WIDTH = 44
"""Characters of a title's line."""
SMOOTHING = 20
"""Curves are running means over a window of 1/SMOOTHING of their points."""


@picture
def learning_curves(cells: Mapping[str, Sequence[Mapping[str, Any]]], axis: str) -> Figure:
    """Training loss over tokens, FLOPs or seconds: a variant's mean over seeds, and lowest to highest seed.

    `cells`: each variant's trainings, all of the same number of steps. The initial drop is cut off.
    """
    figure, axes = one_plot(3.2)
    curves = {}
    for name, of_variant in cells.items():
        x = np.mean([cell["curve"][axis] for cell in of_variant], axis=0)
        curves[name] = {"x": x, **seed_band([cell["curve"]["loss"] for cell in of_variant], SMOOTHING)}
    draw_curves(axes, curves, falling=True)
    axes.set_title("training loss, nats a token")
    axes.set_xlabel(AXIS_TITLES[axis])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if axis != "seconds":
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    legend(figure, axes)
    return figure


@picture
def differences(variants: Rows, baseline: str, colors: Mapping[str, int]) -> Figure:
    """Difference of perplexity from the baseline over all domains, with two intervals for each variant.

    `colors`: variant → the number of its colour, which is the same throughout the report.
    """
    figure, axes = _rows([variant["name"].replace(" ", "\n") for variant in variants], baseline)
    for place, variant in enumerate(variants):
        difference = variant["difference"][OVERALL]
        color = COLORS[colors[variant["name"]] % len(COLORS)]
        _interval(axes, place - 0.14, difference["seeds"], color, "o", 2.5)
        _interval(axes, place + 0.14, difference["documents"], color, "s", 1.0)
    axes.plot([], [], "o-", color=INK, linewidth=2.5, label="over seeds")
    axes.plot([], [], "s-", color=INK, linewidth=1.0, label="over held-out text")
    legend(figure, axes)
    return figure


@picture
def differences_by_domain(differences: Mapping[str, Row], baseline: str) -> Figure:
    """Difference of one model's perplexity relative to the baseline by domain, with one interval each."""
    figure, axes = _rows(list(differences), baseline)
    for place, difference in enumerate(differences.values()):
        _interval(axes, place, difference, COLORS[1], "s", 2.5)
    return figure


def _rows(names: Sequence[str], baseline: str) -> tuple[Figure, Axes]:
    """A plot of relative perplexity with a row for each name."""
    figure, axes = one_plot(1.1 + 0.55 * len(names))
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(fill(f"perplexity relative to {baseline}, %", TITLE_WIDTH))
    axes.grid(axis="x", alpha=0.15)
    axes.grid(axis="y", visible=False)
    return figure, axes


@picture
def loss_over_compute(designs: Rows) -> Figure:
    """Held-out loss at every size over training FLOPs, on logarithmic axes, with each design's fit."""
    figure, axes = one_plot(3.4)
    for i, design in enumerate(designs):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        flops = np.array(design["flops"])
        points = [[loss[key] for key in ("mean", "low", "high")] for loss in design["loss"]]
        mean, low, high = np.array(points, np.float64).T  # with one seed the bounds are None: NaN
        spread = (mean - low, high - mean)
        label = in_legend(design["name"])
        axes.errorbar(flops, mean, spread, fmt="o", color=color, ms=4.5, lw=1.2, label=label)
        if "line" in design:
            fitted = design["line"]["a"] * flops ** -design["line"]["b"]["mean"]
            axes.plot(flops, fitted, dash, color=color, linewidth=1.5)
    _log_flops(axes)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, (1, 1.5, 2, 3, 4, 5, 6, 7, 8)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title("held-out loss, nats a token")
    legend(figure, axes)
    return figure


def _log_flops(axes: Axes) -> None:
    """Training FLOPs on a logarithmic axis, labelled without mathematical text."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(10, (1, 3)) if high > 10 * low else MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0e}".replace("e+", "e")))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(AXIS_TITLES["flops"])


def _interval(axes: Axes, place: float, interval: Row, color: str, marker: str, width: float) -> None:
    """A point with its interval, in per cent."""
    axes.plot([100 * (interval["change"] or 0.0)], [place], marker, color=color, markersize=4.5)
    if interval["low"] is not None and interval["high"] is not None:
        axes.hlines(place, 100 * interval["low"], 100 * interval["high"], color=color, linewidth=width)
