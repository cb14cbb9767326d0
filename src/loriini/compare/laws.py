"""Power laws of held-out loss over compute, along a ladder of sizes, and the trend of a design's gain.

The loss is the mean over domains of the logarithm of perplexity, nats a token, so that no domain counts for
more because it is hard. Laws are fitted to each seed separately, so that intervals over seeds are Student's t
of one value per seed. They cover the choice of the seed, not errors of the law: these are covered by a second
interval, from the residuals of the fitted sizes. A result is called decided only if both intervals decide it.
Where points clearly bend, a power law does not fit them, and nothing is extrapolated.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from loriini.compare.cells import variant_name
from loriini.compare.lines import Lines, bends, lines_of
from loriini.compare.measures import CellRows
from loriini.compare.rows import VariantRow
from loriini.compare.seeds import MeanInterval, over_seeds
from loriini.compare.variants import unswept_settings
from loriini.evaluate.intervals import excludes_zero
from loriini.reporting.curves import Floats

SIZES_OF_A_FLOOR = 4
"""Fewest sizes to which a law with three parameters is fitted."""
LEAST_EXPONENT = 1e-6
"""Smallest exponent b of a law with a floor that counts as above 0, the bound of the fit."""
GRID = 401
"""Number of amounts of compute at which an interval is evaluated."""


@dataclass(frozen=True)
class LadderPoints:
    """A design along the ladder: the logarithms of FLOPs and of loss, by seed and size."""

    name: str
    widths: tuple[int, ...]
    seeds: tuple[int, ...]
    flops_SW: Floats
    loss_SW: Floats

    def only(self, seeds: Sequence[int], widths: Sequence[int]) -> "LadderPoints":
        """The part of some seeds and widths."""
        rows, columns = [self.seeds.index(s) for s in seeds], [self.widths.index(w) for w in widths]
        parts = (array[np.ix_(rows, columns)] for array in (self.flops_SW, self.loss_SW))
        return LadderPoints(self.name, tuple(widths), tuple(seeds), *parts)


@dataclass(frozen=True)
class Trend:
    """The trend of log(loss / loss of the baseline) of a design over compute.

    It is computed from the fitted laws at equal compute, a straight line over log FLOPs. `first` and `last`
    are the baseline's log FLOPs at the smallest and the largest size of both. The line is extrapolated beyond
    the largest by at most last - first, and not at all where points bend.
    """

    lines: Lines
    first: float
    last: float
    bends: bool
    """Whether the points of the design, of the baseline or of their difference bend."""

    @cached_property
    def reach(self) -> float:
        return 2 * self.last - self.first

    def to_dict(self) -> dict[str, Any]:
        """`at_largest`, `per_tenfold`, `bends`, `vanishes`, `doubles` and `reach`, without logarithms.

        `vanishes` and `doubles` are None where points bend.
        """
        center = self.lines.center
        vanishes = partial(self._zero, self.first, lambda x: (1.0, x - center))
        doubles = partial(self._zero, self.last, lambda x: (-1.0, x - center - 2 * (self.last - center)))
        return {
            "at_largest": relative(self.lines.at(self.last)),
            "per_tenfold": relative(self.lines.weighted_sum(0.0, math.log(10))),
            "bends": self.bends,
            "vanishes": None if self.bends else vanishes(),
            "doubles": None if self.bends else doubles(),
            "reach": math.exp(self.reach),
        }

    def _zero(self, start: float, factors: Callable[[float], tuple[float, float]]) -> dict[str, Any]:
        """Where a sum that is linear in log FLOPs is 0 between `start` and the reach, and where it may be.

        `flops` is null if it is 0 nowhere. `low` and `high` are null if the interval contains 0 up to that
        end of the range, and also if it contains 0 nowhere; `possible` distinguishes the two.
        """
        grid = np.linspace(start, self.reach, GRID)
        intervals = [self.lines.weighted_sum(*factors(x)) for x in grid]
        means = np.array([interval.mean for interval in intervals])
        crossed = [i for i in range(GRID - 1) if means[i] * means[i + 1] <= 0 and means[i] != means[i + 1]]
        shares = [means[i] / (means[i] - means[i + 1]) for i in crossed[:1]]
        contains = [i for i, x in enumerate(intervals) if not excludes_zero(x.low, x.high) or i in crossed]
        low, high = (contains[0], contains[-1]) if contains else (0, GRID - 1)
        return {
            "flops": math.exp(grid[crossed[0]] + shares[0] * (grid[1] - grid[0])) if crossed else None,
            "low": math.exp(grid[low]) if low > 0 else None,
            "high": math.exp(grid[high]) if high < GRID - 1 else None,
            "possible": bool(contains),
        }


def relative(difference: MeanInterval) -> dict[str, float | None]:
    """A difference of logarithms as a relative change."""
    return MeanInterval(*map(math.expm1, (difference.mean, difference.low, difference.high))).to_dict()


def measure_ladder(variants: Sequence[VariantRow], cells: CellRows) -> dict[str, Any]:
    """The ladder's `widths`, `baseline` and `designs`, each with its law and its trend to the baseline.

    Only variants that a sweep chose and that are causal take part; seeds that all sizes of a design finished.
    """
    widths = sorted({v["width"] for v in variants})
    shown = [v for v in variants if v["chosen"] and v["causality"] != "none"]
    families = defaultdict[str, dict[int, VariantRow]](dict)
    for v in shown:
        family = variant_name(v["design"], unswept_settings(v))  # without its size and what a sweep chose
        families[family][v["width"]] = v
    points_of = {name: ladder_points(name, of_width, cells) for name, of_width in families.items()}
    baseline = next(iter(families), "")
    designs = []
    for name, of_width in families.items():
        design: dict[str, Any] = {"name": name, "variants": [v["name"] for v in of_width.values()]}
        if points := points_of[name]:
            design |= points_and_laws(points)
            base = points_of[baseline]
            if name != baseline and base and (compared := trend(points, base)):
                design["trend"] = compared.to_dict()
        designs.append(design)
    return {"widths": widths, "baseline": baseline or None, "designs": designs}


def ladder_points(name: str, variants: Mapping[int, VariantRow], cells: CellRows) -> LadderPoints | None:
    """The measurements of a design at the sizes that finished, for the seeds that all these sizes have."""
    cells_by_width: dict[int, dict[int, Mapping[str, Any]]] = {}
    for width, variant in variants.items():
        cells_by_seed = {c["seed"]: c for c in cells if c["name"] == variant["name"] and is_scored(c)}
        if cells_by_seed:
            cells_by_width[width] = cells_by_seed
    seeds = sorted(set.intersection(*map(set, cells_by_width.values()))) if cells_by_width else []
    if not seeds:
        return None
    flops, loss = (
        np.log([[of(cells_by_width[width][seed]) for width in cells_by_width] for seed in seeds])
        for of in (lambda c: c["flops"], heldout_loss)
    )
    return LadderPoints(name, tuple(cells_by_width), tuple(seeds), flops, loss)


def is_scored(cell: Mapping[str, Any]) -> bool:
    """Whether a cell is finished and has a loss above 0, whose logarithm the laws are fitted to."""
    return cell.get("state") == "finished" and "perplexity" in cell and 0 < heldout_loss(cell) < math.inf


def heldout_loss(cell: Mapping[str, Any]) -> float:
    """Mean over domains of the held-out loss, nats a token."""
    return fmean(map(math.log, cell["perplexity"].values()))


def points_and_laws(points: LadderPoints) -> dict[str, Any]:
    """`widths`, `seeds`, `flops`, `loss`, `bends`, `law` and `law_with_floor` of a design.

    A law needs two sizes; one with a floor SIZES_OF_A_FLOOR, and a loss that falls.
    """
    measured: dict[str, Any] = {
        "widths": list(points.widths),
        "seeds": list(points.seeds),
        "flops": np.exp(points.flops_SW.mean(0)).tolist(),
        "loss": [over_seeds(losses).to_dict() for losses in np.exp(points.loss_SW).T.tolist()],
        "bends": bends(points.flops_SW, points.loss_SW),
    }
    if len(points.widths) > 1:
        measured["law"] = power_law(points)
    if len(points.widths) >= SIZES_OF_A_FLOOR and (law := law_with_floor(points)):
        measured["law_with_floor"] = law
    return measured


def power_law(points: LadderPoints) -> dict[str, Any]:
    """loss = a · FLOPs^(−b) by least squares of logarithms: `a`, `b` with its interval, `residual` (rms)."""
    lines = lines_of(points.flops_SW, points.loss_SW)
    slope = lines.weighted_sum(0.0, -1.0)
    return {
        "a": math.exp(lines.at_center_S.mean() + slope.mean * lines.center),
        "b": slope.to_dict(),
        "residual": root_mean_square(lines.residual_W),
    }


def law_with_floor(points: LadderPoints) -> dict[str, Any] | None:
    """loss = a · FLOPs^(−b) + c, means over the seeds' fits: `a` (geometric), `b` and `c` with intervals.

    `residual` is the rms over sizes of the fits' mean residual of log loss. None where a seed's loss does not
    fall: with b = 0, only a + c is known.
    """
    fits = [fit_with_floor(x, y) for x, y in zip(points.flops_SW, points.loss_SW, strict=True)]
    a_S, b_S, c_S = zip(*fits, strict=True)
    if min(b_S) < LEAST_EXPONENT:
        return None
    fitted_SW = np.array(
        [np.log(c + a * np.exp(-b * x)) for x, (a, b, c) in zip(points.flops_SW, fits, strict=True)]
    )
    return {
        "a": math.exp(np.log(a_S).mean()),
        "b": over_seeds(b_S).to_dict(),
        "c": over_seeds(c_S).to_dict(),
        "residual": root_mean_square((points.loss_SW - fitted_SW).mean(0)),
    }


def fit_with_floor(x_W: Floats, y_W: Floats) -> tuple[float, float, float]:
    """a, b and c ≥ 0 of exp(y) = a · exp(−b · x) + c, by least squares of the logarithms."""
    center = x_W.mean()
    lowest = math.exp(y_W.min())

    def residual(parameters: Floats) -> Floats:
        height, b, c = parameters
        return np.log(np.exp(height - b * (x_W - center)) + c) - y_W

    starts = []
    for c in (0.01 * lowest, 0.5 * lowest, 0.9 * lowest):
        slope, height = np.polyfit(x_W - center, np.log(np.exp(y_W) - c), 1)
        starts.append((height, max(-slope, 1e-6), c))
    bounds = ([-np.inf, 0.0, 0.0], [np.inf, np.inf, lowest])
    best = min((least_squares(residual, start, bounds=bounds) for start in starts), key=lambda fit: fit.cost)
    height, b, c = map(float, best.x)
    return math.exp(height + b * center), b, c


def trend(points: LadderPoints, baseline: LadderPoints) -> Trend | None:
    """The trend of a design relative to the baseline, over seeds and sizes that both have.

    None with a single size. The design's law is moved to the baseline's FLOPs, at which it was not fitted:
    the error of its slope counts there, even if both laws have the same residuals.
    """
    seeds = [seed for seed in points.seeds if seed in baseline.seeds]
    widths = [width for width in points.widths if width in baseline.widths]
    if not seeds or len(widths) < 2:
        return None
    bent = any(bends(ladder.flops_SW, ladder.loss_SW) for ladder in (points, baseline))
    points, baseline = points.only(seeds, widths), baseline.only(seeds, widths)
    first, *_, last = baseline.flops_SW.mean(0)
    mine, base = lines_of(points.flops_SW, points.loss_SW), lines_of(baseline.flops_SW, baseline.loss_SW)
    shift = base.center - mine.center
    lines = Lines(
        base.center,
        mine.at_center_S + mine.slope_S * shift - base.at_center_S,
        mine.slope_S - base.slope_S,
        mine.residual_W - base.residual_W,
        base.spread,
        moved=mine.variance * shift**2 / mine.spread,
    )
    bent = bent or bends(baseline.flops_SW, points.loss_SW - baseline.loss_SW)
    return Trend(lines, float(first), float(last), bent)


def root_mean_square(values: Floats) -> float:
    """The typical size of residuals."""
    return float(np.sqrt((values**2).mean()))
