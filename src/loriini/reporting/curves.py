"""Curves over training, from the objects of `metrics.jsonl`."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loriini.routing.stats import entropy

Metrics = Sequence[Mapping[str, Any]]
"""The objects of a `metrics.jsonl`, one a step."""
Floats = NDArray[np.float64]

UTILISATION_WINDOW = 10
"""Steps in which an expert must be active once to count as active (Lory appendix G.1)."""


def column(metrics: Metrics, key: str) -> Floats:
    """The values of `key`, a number or nested lists of numbers a step, as an array (S, …)."""
    return np.array([m[key] for m in metrics], np.float64)


def routed_steps(metrics: Metrics) -> Metrics:
    """The steps of a mixture, without those of a dense warm-up."""
    return [m for m in metrics if "active" in m]


def with_load_entropy(metrics: Metrics) -> Metrics:
    """The steps that recorded the load since the last record, with this load's entropy as `load_entropy`.

    A single step's load has too low an entropy if few units choose: an even choice by 8 leaves experts out.
    """
    loads = [(m, torch.from_numpy(np.array(m["load"], np.float64))) for m in metrics if "load" in m]
    return [{**m, "load_entropy": entropy(load).numpy()} for m, load in loads]


def training_seconds(metrics: Metrics) -> Floats:
    """Seconds of each step (S,), evaluations and checkpoints not counted."""
    return np.diff(column(metrics, "tokens"), prepend=0) / column(metrics, "tokens_per_second")


def smooth(metrics: Metrics, key: str) -> tuple[Floats, Floats]:
    """A statistic over the steps that recorded it: their tokens (S,) and its running mean (S, …)."""
    recorded = [m for m in metrics if key in m]
    return column(recorded, "tokens"), np.apply_along_axis(running_mean, 0, column(recorded, key))


def seed_band(curves: Sequence[Sequence[float]], share: int | None) -> dict[str, Floats]:
    """`y`, the mean over seeds of equally long curves, and `low` and `high`, the lowest and highest seed.

    Each curve is first smoothed by `running_mean` with `share`, if given.
    """
    stacked = np.array(curves, np.float64)
    if share is not None:
        stacked = np.stack([running_mean(curve, share) for curve in stacked])
    return {"y": stacked.mean(0), "low": stacked.min(0), "high": stacked.max(0)}


def utilisation(metrics: Metrics, window: int = UTILISATION_WINDOW) -> tuple[Floats, Floats]:
    """Tokens at the end of each window of steps (W,), and the share of experts active in it (W, layers).

    Each step's `active` is a bit mask (`train.records.expert_use`). A last window that is not full is left
    out, unless it is the only one.
    """
    routed = routed_steps(metrics)
    windows = [routed[i : i + window] for i in range(0, len(routed) - window + 1, window)] or [routed]
    tokens = [steps[-1]["tokens"] for steps in windows]
    return np.array(tokens, np.float64), np.array([_active_share(steps) for steps in windows])


def _active_share(steps: Metrics) -> list[float]:
    """The share of experts that are active in at least one of the steps, per layer."""
    layers = zip(*(step["active"] for step in steps), strict=True)
    return [reduce(or_, masks).bit_count() / steps[-1]["experts"] for masks in layers]


def running_mean(values: Floats, share: int = 40) -> Floats:
    """Running mean over a window of 1/`share` of the values; values that are not finite are left out."""
    window = np.ones(max(1, len(values) // share))
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0), window, "same")
    with np.errstate(invalid="ignore"):
        return sums / np.convolve(finite, window, "same")


def thin(x: Floats, y: Floats, points: int = 400) -> tuple[Floats, Floats]:
    """At most about `points` of the points, evenly spaced, and the last one."""
    kept = np.unique(np.append(np.arange(0, len(x), max(1, len(x) // points)), len(x) - 1))
    return x[kept], y[kept]
