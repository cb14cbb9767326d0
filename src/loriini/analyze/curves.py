"""`metrics.jsonl` → what is drawn over training."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

Metrics = Sequence[Mapping[str, Any]]
"""The objects of a `metrics.jsonl`, one a step."""
Floats = NDArray[np.float64]

WINDOW = 10
"""Steps over which an expert counts as active when it was so once (Lory appendix G.1)."""


def column(metrics: Metrics, key: str) -> Floats:
    """What each step tells of `key`: a number or nested lists of them."""
    return np.array([m[key] for m in metrics], np.float64)


def routed_steps(metrics: Metrics) -> Metrics:
    """The steps that had experts to choose from."""
    return [m for m in metrics if "active" in m]


def smooth(metrics: Metrics, key: str) -> tuple[Floats, Floats]:
    """A statistic of experts over the steps that tell it: their tokens (S,) and its running mean (S, …)."""
    told = [m for m in metrics if key in m]
    return column(told, "tokens"), np.apply_along_axis(running_mean, 0, column(told, key))


def utilisation(metrics: Metrics, window: int = WINDOW) -> tuple[Floats, Floats]:
    """Tokens at the end of each window of steps (W,), and the share of experts active in it (W, layers).

    An expert is active where its weight is over 2/E for at least one unit; `active` holds a step's as bits.
    Steps that do not fill a last window are left out, unless there is no other.
    """
    routed = routed_steps(metrics)
    windows = [routed[i : i + window] for i in range(0, len(routed) - window + 1, window)] or [routed]
    tokens = [steps[-1]["tokens"] for steps in windows]
    return np.array(tokens, np.float64), np.array([_active_share(steps) for steps in windows])


def _active_share(steps: Metrics) -> list[float]:
    """The share of experts that some step has active, per layer."""
    layers = zip(*(step["active"] for step in steps), strict=True)
    return [reduce(or_, masks).bit_count() / steps[-1]["experts"] for masks in layers]


def running_mean(values: Floats, share: int = 40) -> Floats:
    """The mean around each value over 1/`share` of them all; what is not finite does not count."""
    window = np.ones(max(1, len(values) // share))
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0), window, "same")
    with np.errstate(invalid="ignore"):
        return sums / np.convolve(finite, window, "same")


def thin(x: Floats, y: Floats, points: int = 400) -> tuple[Floats, Floats]:
    """Every n-th point and the last, so that a long run is not a long file."""
    kept = np.unique(np.append(np.arange(0, len(x), max(1, len(x) // points)), len(x) - 1))
    return x[kept], y[kept]
