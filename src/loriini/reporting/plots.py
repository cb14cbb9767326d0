"""Plots as SVG text for a page, legible in light and dark mode and on a phone.

Plots have no background, and what is drawn in INK takes the colour of the text around it. The same numbers
give the same bytes.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from io import StringIO
from typing import Any, ParamSpec

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from loriini.reporting.curves import Floats, Metrics, column, running_mean, smooth, thin

P = ParamSpec("P")

INK = "#010203"
"""Placeholder of the page's text colour."""
DENSE_COLOR, MIXTURE_COLOR = "#8391a1", "#e5484d"
LESS, MORE = "#3b7dd8", "#e5484d"
CLEAR_AT_ZERO = [(0.0, to_rgba(LESS)), (0.5, to_rgba(LESS, 0)), (0.5, to_rgba(MORE, 0)), (1.0, to_rgba(MORE))]
FIGURE_WIDTH = 4.8
COLORS = (DENSE_COLOR, "#e5484d", "#3b7dd8", "#2f9e6e", "#c77d0a", "#9a63e0", "#0e9aa7", "#d4569c")
"""Colours of the lines, in order; each is legible on white and on black."""
ROWS, ROW_HEIGHT = 4, 0.22
"""Rows of a legend that a figure has room for, and the height of each further row in inches."""
DASHES = ("-", "--", "-.", ":")
"""Line styles, in order, so that colour is not the only difference between lines."""
INITIAL_SHARE = 0.15
"""Initial share of a loss curve that is ignored when the limits of the axis are chosen."""
SCALES = (1.5, 2, 4, 8)
"""The multiples of the even share that a heat map's strongest colour can stand for."""

INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
FIGURE_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "loriini",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(INKED, INK),
}


def picture(draw: Callable[P, Figure]) -> Callable[P, str]:
    """Decorate a function that draws a figure to return it as SVG text in this module's style."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> str:
        with rc_context(FIGURE_STYLE), warnings.catch_warnings():
            # The reader's browser draws the text with its own fonts.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            return to_svg(draw(*args, **kwargs))

    return drawn


def to_svg(figure: Figure) -> str:
    """A figure as an `<svg>` element that fills the width of its container.

    The XML declaration, metadata, the size in points, styles that would apply to the whole page and ids of
    groups, which repeat from figure to figure, are removed.
    """
    file = StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = file.getvalue()
    head, body = svg[svg.index("<svg") :].split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    return f"{head}>{body}".replace(INK, "currentColor")


def in_legend(name: str) -> str:
    """A label that matplotlib shows: it hides one that begins with `_`, so a zero-width space goes first."""
    return f"\u200b{name}" if name.startswith("_") else name


@picture
def loss_curve(name: str, metrics: Metrics) -> Figure:
    """Training loss over tokens: every step faint, the running mean strong; the initial drop is cut off."""
    figure, axes = one_plot(2.9)
    tokens, loss = column(metrics, "tokens"), column(metrics, "loss")
    mean = running_mean(loss)
    axes.plot(*thin(tokens, loss), color=MIXTURE_COLOR, alpha=0.3, linewidth=0.8)
    label = in_legend(f"{name}, {mean[-1]:.2f} at the end")
    axes.plot(*thin(tokens, mean), color=MIXTURE_COLOR, linewidth=2, label=label)
    dense = [m["tokens"] for m in metrics if m.get("experts", 1) == 1]
    if 0 < len(dense) < len(metrics):  # where the dense model was copied into experts
        axes.axvline(dense[-1], color=INK, linestyle=":", linewidth=1)
    low, high = np.nanmin(mean[len(mean) // 10 :]), np.nanmax(mean[len(mean) // 10 :])
    axes.set_ylim(low - 0.1 * (high - low) - 0.01, high + 0.01)
    _over_tokens(axes, "training loss, nats a token")
    axes.legend(loc="upper right")
    return figure


@picture
def histogram_bars(values: Mapping[str, Sequence[float]], title: str, unit: str) -> Figure:
    """A histogram of `counts` between `edges`, over a logarithmic axis."""
    figure, axes = one_plot(2.4)
    axes.stairs(values["counts"], values["edges"], fill=True, color=MIXTURE_COLOR)
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(2, numticks=6))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure


@picture
def shares_by_domain(shares: ArrayLike, domains: Sequence[str]) -> Figure:
    """One panel a layer: rows are domains, columns experts, colour the share relative to the even share 1/E.

    `shares` (layers, domains, E). The colour is that of log(share · E): none for an even share.
    """
    values = np.asarray(shares, np.float64)
    layers, rows, experts = values.shape
    ratios = np.log(np.maximum(values * experts, 1e-9))
    scale = next((s for s in SCALES if math.log(s) >= np.abs(ratios).max()), SCALES[-1])
    figure, panels = _panels(layers, 0.24 * rows)
    numbered = np.arange(0, experts, math.ceil(experts * (2 if layers <= 8 else 4) / 16))
    for layer, axes in enumerate(panels):
        tiles = _tiles(axes, ratios[layer], math.log(scale))
        axes.set_title(f"layer {layer}")
        axes.set_yticks(np.arange(rows) + 0.5, [d if len(d) <= 14 else f"{d[:13]}…" for d in domains])
        axes.set_xticks(numbered + 0.5, numbered)
    bar = figure.colorbar(tiles, ax=panels, location="bottom", aspect=30, shrink=0.8)
    bar.set_ticks([-math.log(scale), 0, math.log(scale)])
    bar.set_ticklabels([f"÷ {scale:g}", f"even, 1/{experts}", f"× {scale:g}"])
    bar.outline.set_visible(False)
    return figure


@picture
def entropy_curves(metrics: Metrics, key: str, title: str) -> Figure:
    """Effective number of experts, the exponential of an entropy: a line a layer, and their mean."""
    figure, axes = one_plot(2.9)
    experts = metrics[-1]["experts"]
    tokens, entropy = smooth(metrics, key)
    effective, layers = np.exp(entropy), entropy.shape[1]
    for layer, shade in enumerate(_shades(layers)):
        label = f"layer {layer}" if layer in (0, layers - 1) else None
        axes.plot(*thin(tokens, effective[:, layer]), color=shade, alpha=0.7, linewidth=1, label=label)
    axes.plot(*thin(tokens, effective.mean(1)), color=INK, linewidth=2, label="mean")
    figure.legend(loc="outside lower center", ncols=3)
    axes.axhline(experts, color=INK, linestyle=":", linewidth=1)
    axes.set_ylim(1, experts * 1.04)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _over_tokens(axes, title)
    return figure


@picture
def load_bands(metrics: Metrics) -> Figure:
    """One panel a layer: a band for each expert, as high as its share of the load."""
    tokens, load_SLE = smooth(metrics, "load")
    figure, panels = _panels(load_SLE.shape[1], 1)
    for layer, axes in enumerate(panels):
        x, shares_SE = thin(tokens, load_SLE[:, layer], 100)
        axes.stackplot(x, shares_SE.T, colors=_shades(shares_SE.shape[1]), edgecolor=INK, linewidth=0.3)
        _over_tokens(axes, f"layer {layer}", ticks=2)
        axes.set(xlim=(x[0], x[-1]), ylim=(0, 1), yticks=(0, 1))
    return figure


def one_plot(height: float) -> tuple[Figure, Axes]:
    """A figure of the usual width with one plot."""
    figure = Figure(figsize=(FIGURE_WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def draw_curves(axes: Axes, curves: Mapping[str, Mapping[str, ArrayLike]], falling: bool = False) -> None:
    """Draw a line for each named curve, `y` over `x`, and a band from `low` to `high` if it has them.

    If the curves are `falling`, such as losses, their initial drop is cut off.
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
    finite = np.concatenate([values[np.isfinite(values)] for values in shown])
    if falling and len(finite):
        margin = 0.05 * np.ptp(finite) + 0.005
        axes.set_ylim(finite.min() - margin, finite.max() + margin)


def legend(figure: Figure, axes: Axes, width: int = 48, **style: Any) -> None:
    """Names below the plot, in as many columns as fit into `width` characters; many rows make it taller."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(3, width // (max(map(len, labels)) + 6)))
    more_rows = max(0, math.ceil(len(labels) / columns) - ROWS)
    figure.set_figheight(figure.get_figheight() + ROW_HEIGHT * more_rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **style)


def _panels(count: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure of `count` panels of a height in inches, in at most two columns, or four for many panels."""
    columns = min(count, 2 if count <= 8 else 4)
    lines = math.ceil(count / columns)
    figure = Figure(figsize=(FIGURE_WIDTH, 0.8 + lines * (0.4 + height)), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes in panels[count:]:
        axes.remove()
    return figure, list(panels[:count])


def _shades(count: int) -> NDArray[Any]:
    return LinearSegmentedColormap.from_list("shades", [LESS, MORE])(np.linspace(0, 1, count))


def _over_tokens(axes: Axes, title: str, ticks: int = 4) -> None:
    """Set the title, and tokens as the x axis with few ticks."""
    axes.set_title(title)
    place = axes.get_subplotspec()
    axes.set_xlabel("tokens" if place is None or place.is_last_row() else "")
    axes.xaxis.set_major_locator(MaxNLocator(ticks))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _tiles(axes: Axes, values: Floats, reach: float) -> PatchCollection:
    """Draw a tile for every value (rows, columns) between -reach and reach, clear at zero."""
    rows, columns = values.shape
    tiles = PatchCollection(
        [Rectangle((j + 0.04, i + 0.06), 0.92, 0.88) for i in range(rows) for j in range(columns)],
        cmap=LinearSegmentedColormap.from_list("gates", CLEAR_AT_ZERO, N=15),
        norm=Normalize(-reach, reach, clip=True),
        edgecolor=to_rgba(INK, 0.15),
        linewidth=0.5,
    )
    tiles.set_array(values.ravel())
    axes.add_collection(tiles)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return tiles
