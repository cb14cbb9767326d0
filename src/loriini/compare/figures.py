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

from loriini.compare.rows import Change, LadderDesign, VariantRow
from loriini.evaluate.intervals import OVERALL
from loriini.reporting.curves import seed_band
from loriini.reporting.plots import INK, in_legend, one_plot, picture
from loriini.reporting.series import COLORS, DASHES, draw_curves, legend

AXIS_TITLES = {
    "tokens": "tokens of training",
    "flops": "training FLOPs",
    "seconds": "seconds of training",
}
TITLE_WIDTH = 44
"""Characters of a title's line."""
SMOOTHING = 20
"""Curves are running means over a window of 1/SMOOTHING of their points."""


@picture
def learning_curves(cells: Mapping[str, Sequence[Mapping[str, Any]]], axis: str) -> Figure:
    """Training loss over tokens, FLOPs or seconds: a variant's mean over seeds, and lowest to highest seed.

    `cells` are those of each variant, with the same steps. The initial drop is cut off.
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
def differences(variants: Sequence[VariantRow], baseline: str, places: Mapping[str, int]) -> Figure:
    """Difference of perplexity relative to the baseline, all domains: two intervals for each variant.

    `places` are those of the variants among all that the report shows, by name; each has one colour there.
    """
    figure, axes = one_plot(1.1 + 0.55 * len(variants))
    for place, variant in enumerate(variants):
        difference = variant["difference"][OVERALL]
        color = COLORS[places[variant["name"]] % len(COLORS)]
        _interval(axes, place - 0.14, difference["seeds"], color, "o", 2.5)
        _interval(axes, place + 0.14, difference["documents"], color, "s", 1.0)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(variants)), [variant["name"].replace(" ", "\n") for variant in variants])
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.set_title(fill(f"perplexity relative to {baseline}, %", TITLE_WIDTH))
    axes.grid(axis="x", alpha=0.15)
    axes.grid(axis="y", visible=False)
    axes.plot([], [], "o-", color=INK, linewidth=2.5, label="over seeds")
    axes.plot([], [], "s-", color=INK, linewidth=1.0, label="over held-out text")
    legend(figure, axes)
    return figure


@picture
def loss_over_compute(designs: Sequence[LadderDesign]) -> Figure:
    """Held-out loss at every size over training FLOPs, on logarithmic axes, with each design's power law.

    Thin lines join the points of a design without a law, and of one whose points bend.
    """
    figure, axes = one_plot(3.4)
    for i, design in enumerate(designs):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        flops = np.array(design["flops"])
        mean = np.array([loss["mean"] for loss in design["loss"]])
        low = np.array([loss["mean"] if loss["low"] is None else loss["low"] for loss in design["loss"]])
        high = np.array([loss["mean"] if loss["high"] is None else loss["high"] for loss in design["loss"]])
        axes.errorbar(flops, mean, (mean - low, high - mean), fmt="o", color=color, ms=4.5, lw=1.2)
        if "law" in design and not design["bends"]:
            line = np.geomspace(flops.min(), flops.max(), 50)
            fitted = design["law"]["a"] * line ** -design["law"]["b"]["mean"]
            axes.plot(line, fitted, dash, color=color, linewidth=1.8, label=in_legend(design["name"]))
        else:
            axes.plot(flops, mean, dash, color=color, linewidth=0.8, label=in_legend(design["name"]))
    _log_flops(axes)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, (1, 1.5, 2, 3, 4, 5, 6, 7, 8)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_title("held-out loss, nats a token")
    legend(figure, axes)
    return figure


@picture
def gain_over_compute(designs: Sequence[LadderDesign], baseline: str) -> Figure:
    """Loss of the fitted laws relative to the baseline's, from the smallest size to the largest, in per cent.

    `designs` are the ladder's, the baseline first; those whose points bend are left out. Beside a line, its
    interval at the largest size.
    """
    figure, axes = one_plot(3.4)
    axes.axhline(0, color=INK, linewidth=1)
    for i, design in enumerate(designs):
        if "trend" not in design or design["trend"]["bends"]:
            continue
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        by_width = dict(zip(designs[0]["widths"], designs[0]["flops"], strict=True))
        flops = np.array([by_width[width] for width in design["widths"] if width in by_width])
        line = np.geomspace(flops.min(), flops.max(), 50)
        last, tenfold = design["trend"]["at_largest"], design["trend"]["per_tenfold"]["mean"]
        change = np.expm1(np.log1p(last["mean"]) + np.log10(line / flops.max()) * np.log1p(tenfold))
        axes.plot(line, 100 * change, dash, color=color, linewidth=1.8, label=in_legend(design["name"]))
        if last["low"] is not None and last["high"] is not None:
            place = flops.max() * 1.15 ** (i + 1)
            axes.vlines(place, 100 * last["low"], 100 * last["high"], color=color, linewidth=1.8)
    _log_flops(axes)
    axes.set_title(fill(f"fitted loss relative to {baseline}, %", TITLE_WIDTH))
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


def _interval(axes: Axes, place: float, interval: Change, color: str, marker: str, width: float) -> None:
    """A point with its interval, in per cent."""
    axes.plot([100 * (interval["change"] or 0.0)], [place], marker, color=color, markersize=4.5)
    if interval["low"] is not None and interval["high"] is not None:
        axes.hlines(place, 100 * interval["low"], 100 * interval["high"], color=color, linewidth=width)
