"""Straight lines of log loss over log FLOPs, one a seed, and whether points leave them."""

import math
from dataclasses import dataclass

import numpy as np

from loriini.compare.seeds import MeanInterval, over_seeds
from loriini.evaluate.intervals import CONFIDENCE, t_quantile
from loriini.reporting.curves import Floats

BEND_TESTS = 3
"""Curves whose bends a trend is tested for: the design's, the baseline's and their difference."""
SMALLEST_BEND = 1e-4
"""Least bend that counts, in log loss from chord to middle of a parabola; less changes no number shown."""


@dataclass(frozen=True)
class Lines:
    """A straight line over log FLOPs for each seed, and the residuals of their mean over sizes.

    `at_center_S` are the values where log FLOPs are `center`; `spread` is the sum of squared distances of the
    sizes from there. `moved` is a further variance of these values, where `center` is not that of the fit.
    """

    center: float
    at_center_S: Floats
    slope_S: Floats
    residual_W: Floats
    spread: float
    moved: float = 0.0

    @property
    def variance(self) -> float:
        """Variance of the residuals; 0 with two sizes, through which the line passes."""
        return float((self.residual_W**2).sum()) / max(1, len(self.residual_W) - 2)

    def weighted_sum(self, constant: float, slope: float) -> MeanInterval:
        """A sum of the lines' values at the centre and of their slopes, times two factors.

        The interval spans that over seeds and that of the regression over sizes; NaN where neither exists:
        a single seed and two sizes.
        """
        interval = over_seeds((constant * self.at_center_S + slope * self.slope_S).tolist())
        ends = [] if math.isnan(interval.low) else [(interval.low, interval.high)]
        count = len(self.residual_W)
        if count > 2:
            of_fit = self.variance * (constant**2 / count + slope**2 / self.spread)
            error = math.sqrt(of_fit + constant**2 * self.moved)
            half = t_quantile(count - 2) * error
            ends.append((interval.mean - half, interval.mean + half))
        if not ends:
            return interval
        return MeanInterval(interval.mean, min(low for low, _ in ends), max(high for _, high in ends))

    def at(self, log_flops: float) -> MeanInterval:
        """The value at an amount of compute."""
        return self.weighted_sum(1.0, log_flops - self.center)


def lines_of(x_SW: Floats, y_SW: Floats) -> Lines:
    """Each seed's line by least squares."""
    mean_W = x_SW.mean(0)
    center = float(mean_W.mean())
    slope_S, at_center_S = np.array([np.polyfit(x - center, y, 1) for x, y in zip(x_SW, y_SW, strict=True)]).T
    fitted_SW = at_center_S[:, None] + slope_S[:, None] * (x_SW - center)
    residual_W = (y_SW - fitted_SW).mean(0)
    return Lines(center, at_center_S, slope_S, residual_W, float(((mean_W - center) ** 2).sum()))


def bends(x_SW: Floats, y_SW: Floats) -> bool:
    """Whether points clearly leave a straight line, so that a power law must not be continued.

    A parabola is fitted to the points of all seeds, each seed with a height of its own. They bend where the
    t interval of its second-order term, from the points' scatter about it, excludes 0, at a level that the
    tests of a trend share (Bonferroni): three straight curves pass all of them in at least 95 % of cases.

    A floor bends log loss over log FLOPs upwards; it is not tested itself, since it is at least 0 and has no
    such interval. What all seeds of a size share, such as its learning rate, bends points as well. With fewer
    than three sizes, or three of one seed, nothing is clear.
    """
    seeds, sizes = y_SW.shape
    freedom = y_SW.size - seeds - 2
    if sizes < 3 or freedom < 1:
        return False
    x_SW = 2 * (x_SW - x_SW.mean()) / np.ptp(x_SW)
    y_N, *terms = ((v_SW - v_SW.mean(1, keepdims=True)).ravel() for v_SW in (y_SW, x_SW, x_SW**2))
    terms_N2 = np.stack(terms, 1)
    fitted_2 = np.linalg.lstsq(terms_N2, y_N)[0]
    variance = ((y_N - terms_N2 @ fitted_2) ** 2).sum() / freedom
    error = math.sqrt(variance * np.linalg.inv(terms_N2.T @ terms_N2)[1, 1])
    half = t_quantile(freedom, 1 - (1 - CONFIDENCE) / BEND_TESTS) * error
    return bool(abs(fitted_2[1]) > max(half, SMALLEST_BEND))
