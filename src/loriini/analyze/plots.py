"""Numbers → pictures: SVG text for a page, clear on light and on dark paper, legible on a phone.

Pictures have no background, and what is drawn in INK takes the colour of the text around it. The same
numbers give the same bytes.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from io import StringIO
from operator import or_
from typing import Any, ParamSpec

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

Metrics = Sequence[Mapping[str, Any]]
"""The objects of a `metrics.jsonl`, one a step."""
Floats = NDArray[np.float64]
P = ParamSpec("P")

INK = "#010203"
"""Stands for the page's text colour."""
DENSE, MIXTURE = "#8391a1", "#e5484d"
LESS, MORE = "#3b7dd8", "#e5484d"
WIDTH = 4.8
POINTS = 400
WINDOW = 10
"""Steps over which an expert counts as active when it was so once (Lory appendix G.1)."""
SCALES = (1.5, 2, 4, 8)

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "loriini",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid.axis": "y",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}


def picture(draw: Callable[P, Figure]) -> Callable[P, str]:
    """Make a function that draws a figure return it as SVG text, in this module's style."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> str:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Glyph .* missing"
            )  # the reader's fonts draw the text, not ours
            return to_svg(draw(*args, **kwargs))

    return drawn


def to_svg(figure: Figure) -> str:
    """A figure as an `<svg>` element that takes the width it is given, without ids of its own groups."""
    file = StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = file.getvalue()
    svg = re.sub(
        r"<defs>\s*<style.*?</defs>|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S
    )
    svg = re.sub(r'(<g) id="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    return svg.replace(INK, "currentColor")


@picture
def loss_curves(runs: Mapping[str, Metrics]) -> Figure:
    """Training loss over tokens, every step faint and a running mean over it; the first plunge is cut off."""
    figure, axes = _axes(2.9)
    tops = []
    for (name, metrics), color in zip(runs.items(), (DENSE, MIXTURE), strict=False):
        tokens, loss = _column(metrics, "tokens"), _column(metrics, "loss")
        mean = running_mean(loss)
        axes.plot(*_thin(tokens, loss), color=color, alpha=0.3, linewidth=0.8)
        axes.plot(*_thin(tokens, mean), color=color, linewidth=2, label=f"{name}, {mean[-1]:.2f} at the end")
        tops.append(mean[len(mean) // 20])
        _mark_copy(axes, metrics)
    axes.set_ylim(top=max(tops))
    _over_tokens(axes, "training loss, nats a token")
    axes.legend(loc="upper right")
    return figure


@picture
def loss_difference(dense: Metrics, mixture: Metrics) -> Figure:
    """The mixture's loss minus the dense model's over the steps both made; below zero the mixture leads."""
    figure, axes = _axes(2.9)
    steps = min(len(dense), len(mixture))
    tokens = _column(mixture[:steps], "tokens")
    difference = _column(mixture[:steps], "loss") - _column(dense[:steps], "loss")
    mean = running_mean(difference)
    axes.plot(*_thin(tokens, difference), color=MIXTURE, alpha=0.3, linewidth=0.8)
    axes.plot(*_thin(tokens, mean), color=MIXTURE, linewidth=2)
    axes.axhline(0, color=INK, linewidth=1)
    reach = 1.5 * np.nanmax(np.abs(mean[len(mean) // 20 :]), initial=0.01)
    axes.set_ylim(-reach, reach)
    _mark_copy(axes, mixture)
    _over_tokens(axes, "mixture − dense, nats a token")
    return figure


@picture
def perplexity_bars(dense: Mapping[str, float], mixture: Mapping[str, float], name: str) -> Figure:
    """Two bars a domain, the mixture's with its difference in per cent."""
    figure, axes = _axes(0.75 + 0.55 * len(dense))
    places = np.arange(len(dense))
    differences = {
        domain: f"{mixture[domain]:.1f}  {mixture[domain] / dense[domain] - 1:+.1%}" for domain in dense
    }
    _bars(axes, places - 0.2, list(dense.values()), [f"{x:.1f}" for x in dense.values()], DENSE, "dense")
    _bars(axes, places + 0.2, [mixture[d] for d in dense], list(differences.values()), MIXTURE, name)
    _label_bars(axes, list(dense))
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


@picture
def bars(values: Mapping[str, float], labels: Sequence[str]) -> Figure:
    """One bar a name, with its label behind it."""
    figure, axes = _axes(0.3 + 0.36 * len(values))
    _bars(axes, np.arange(len(values)), list(values.values()), labels, MIXTURE, "", height=0.6)
    _label_bars(axes, list(values))
    return figure


def order_bars(order: Mapping[str, float]) -> str:
    """Mean cosine between documents that share an instance, for each order."""
    return bars(order, [f"{cosine:.3f}" for cosine in order.values()])


def stage_bars(seconds: Mapping[str, float]) -> str:
    """Seconds of each stage."""
    return bars(seconds, [f"{s:,.1f} s" if s < 10 else f"{s:,.0f} s" for s in seconds.values()])


@picture
def gates_by_domain(mean_gates: ArrayLike, domains: Sequence[str]) -> Figure:
    """One panel a layer: rows are domains, columns experts, colour the mean weight beside the even share 1/E.

    `mean_gates` (layers, domains, E). The colour is that of log(weight · E): none where all weigh the same.
    """
    ratios = np.maximum(np.asarray(mean_gates, np.float64), 1e-9)
    layers, rows, experts = ratios.shape
    ratios = np.log(ratios * experts)
    scale = next((s for s in SCALES if math.log(s) >= np.abs(ratios).max()), SCALES[-1])
    columns = min(layers, 2 if layers <= 8 else 4)
    lines = math.ceil(layers / columns)
    figure = Figure(figsize=(WIDTH, 0.9 + lines * (0.4 + 0.24 * rows)), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[layers:]:
        axes.remove()
    for layer, axes in enumerate(panels.flat[:layers]):
        tiles = _tiles(axes, ratios[layer], math.log(scale))
        axes.set_title(f"layer {layer}")
        axes.set_yticks(np.arange(rows) + 0.5, [_short(d) for d in domains])
        axes.set_xticks(
            np.arange(experts)[:: math.ceil(experts / 8)] + 0.5, range(experts)[:: math.ceil(experts / 8)]
        )
    bar = figure.colorbar(tiles, ax=list(panels.flat[:layers]), location="bottom", aspect=30, shrink=0.8)
    bar.set_ticks([-math.log(scale), 0, math.log(scale)])
    bar.set_ticklabels([f"÷ {scale:g}", f"even, 1/{experts}", f"× {scale:g}"])
    bar.outline.set_visible(False)
    return figure


@picture
def utilisation_curves(metrics: Metrics) -> Figure:
    """Share of experts active in windows of ten steps: a line a layer, and their mean."""
    figure, axes = _axes(2.7)
    tokens, share = utilisation(metrics)
    _layer_lines(axes, tokens, share)
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    _over_tokens(axes, "experts active")
    return figure


@picture
def entropy_curves(metrics: Metrics) -> Figure:
    """Effective number of experts, exp(gate entropy): a line a layer, and their mean."""
    figure, axes = _axes(2.7)
    routed = routed_steps(metrics)
    entropy = np.apply_along_axis(running_mean, 0, np.array([m["gate_entropy"] for m in routed], np.float64))
    _layer_lines(axes, _column(routed, "tokens"), np.exp(entropy))
    experts = routed[-1]["experts"]
    axes.axhline(experts, color=INK, linestyle=":", linewidth=1)
    axes.set_ylim(1, experts * 1.04)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _over_tokens(axes, "effective number of experts")
    return figure


def routed_steps(metrics: Metrics) -> Metrics:
    """The steps that had experts to choose from."""
    return [m for m in metrics if m.get("experts", 1) > 1 and "active" in m]


def utilisation(metrics: Metrics, window: int = WINDOW) -> tuple[Floats, Floats]:
    """Tokens at the end of each window of steps (W,), and the share of experts active in it (W, layers).

    An expert is active where its weight is over 2/E for at least one unit; `active` holds a step's as bits.
    Steps that do not fill a last window are left out.
    """
    routed = routed_steps(metrics)
    windows = [routed[i : i + window] for i in range(0, len(routed) - window + 1, window)] or [routed]
    share = [
        [
            reduce(or_, masks).bit_count() / steps[-1]["experts"]
            for masks in zip(*(m["active"] for m in steps), strict=True)
        ]
        for steps in windows
    ]
    return np.array([steps[-1]["tokens"] for steps in windows], np.float64), np.array(share, np.float64)


def running_mean(values: Floats, share: int = 40) -> Floats:
    """The mean around each value over 1/`share` of them all; what is not finite does not count."""
    window = np.ones(max(1, len(values) // share))
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0), window, "same")
    with np.errstate(invalid="ignore"):
        return sums / np.convolve(finite, window, "same")


def _axes(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _column(metrics: Metrics, key: str) -> Floats:
    return np.array([m[key] for m in metrics], np.float64)


def _thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Every n-th point and the last, so that a long run is not a long file."""
    kept = np.unique(np.append(np.arange(0, len(x), max(1, len(x) // POINTS)), len(x) - 1))
    return x[kept], y[kept]


def _over_tokens(axes: Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _mark_copy(axes: Axes, metrics: Metrics) -> None:
    """A dotted line where the dense model was copied into experts."""
    dense = [m["tokens"] for m in metrics if m.get("experts", 1) == 1]
    if 0 < len(dense) < len(metrics):
        axes.axvline(dense[-1], color=INK, linestyle=":", linewidth=1)


def _layer_lines(axes: Axes, x: Floats, values: Floats) -> None:
    """A thin line for each column of `values` (points, layers), cool to warm, and their mean in ink."""
    shades = LinearSegmentedColormap.from_list("layers", [LESS, MORE])
    layers = values.shape[1]
    for layer in range(layers):
        named = f"layer {layer}" if layer in (0, layers - 1) else None
        axes.plot(
            *_thin(x, values[:, layer]),
            color=shades(layer / max(layers - 1, 1)),
            alpha=0.7,
            linewidth=1,
            label=named,
        )
    axes.plot(*_thin(x, values.mean(1)), color=INK, linewidth=2, label="mean")
    axes.legend(loc="lower right", ncols=3, columnspacing=1, handlelength=1.2)


def _bars(
    axes: Axes,
    places: NDArray[Any],
    values: list[float],
    labels: Sequence[str],
    color: str,
    name: str,
    height: float = 0.36,
) -> None:
    drawn = axes.barh(places, values, height=height, color=color, label=name)
    axes.bar_label(drawn, labels, padding=4, fontsize=9.5)


def _label_bars(axes: Axes, names: Sequence[str]) -> None:
    """Names instead of an axis, room for the bars' labels, the first bar on top."""
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_xlim(0, axes.dataLim.xmax * 1.45)
    axes.xaxis.set_visible(False)
    axes.grid(False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params("y", length=0)
    axes.invert_yaxis()


def _tiles(axes: Axes, values: Floats, reach: float) -> PatchCollection:
    """A tile for every value (rows, columns) between -reach and reach, clear at zero."""
    colors = [LESS, to_rgba(LESS, 0), to_rgba(MORE, 0), MORE]
    shades = LinearSegmentedColormap.from_list(
        "gates", list(zip((0, 0.5, 0.5, 1), colors, strict=True)), N=15
    )
    rows, columns = values.shape
    tiles = PatchCollection(
        [Rectangle((j + 0.04, i + 0.06), 0.92, 0.88) for i in range(rows) for j in range(columns)],
        cmap=shades,
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


def _short(name: str, limit: int = 14) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
