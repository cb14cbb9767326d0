"""How plots of several lines tell them apart: colours, line styles, limits and a legend."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from loriini.reporting.plots import DENSE_COLOR, in_legend

COLORS = (DENSE_COLOR, "#e5484d", "#3b7dd8", "#2f9e6e", "#c77d0a", "#9a63e0", "#0e9aa7", "#d4569c")
"""Colours of the lines, in order; each is legible on white and on black."""
ROWS, ROW_HEIGHT = 4, 0.22
"""Rows of a legend that a figure has room for, and the height of another one in inches."""
DASHES = ("-", "--", "-.", ":")
"""Line styles, so that colour alone distinguishes nothing: every line of four has another."""


INITIAL_SHARE = 0.15
"""Initial share of a loss curve that is ignored when the limits of the axis are chosen."""


def draw_curves(axes: Axes, curves: Mapping[str, Mapping[str, ArrayLike]], falling: bool = False) -> None:
    """A line for each of several curves by name, `y` over `x`, in a band from `low` to `high` if it has one.

    The initial drop of `falling` ones, such as losses, is cut off.
    """
    shown = []
    for i, (name, curve) in enumerate(curves.items()):
        color, dash = COLORS[i % len(COLORS)], DASHES[i % len(DASHES)]
        values = {key: np.asarray(column, np.float64) for key, column in curve.items()}
        x = values.pop("x")
        axes.plot(x, values["y"], dash, color=color, linewidth=1.6, label=in_legend(name))
        if "low" in values:
            axes.fill_between(x, values["low"], values["high"], color=color, alpha=0.15, linewidth=0)
        shown += [column[int(INITIAL_SHARE * len(x)) :] for column in values.values()]
    if falling:
        limit_to(axes, shown)


def limit_to(axes: Axes, shown: Sequence[NDArray[np.float64]]) -> None:
    """Limits of the vertical axis that show some finite values, with a margin."""
    finite = np.concatenate([values[np.isfinite(values)] for values in shown])
    if len(finite):
        margin = 0.05 * np.ptp(finite) + 0.005
        axes.set_ylim(finite.min() - margin, finite.max() + margin)


def legend(figure: Figure, axes: Axes, width: int = 48, **style: Any) -> None:
    """Names below the plot, in columns that fit them into a `width` in characters; many make it taller."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(3, width // (max(map(len, labels)) + 6)))
    more_rows = max(0, math.ceil(len(labels) / columns) - ROWS)
    figure.set_figheight(figure.get_figheight() + ROW_HEIGHT * more_rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **style)
