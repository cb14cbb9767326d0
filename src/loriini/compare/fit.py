"""A ladder of sizes: the measured points of each design, and a line fitted to them on logarithmic axes.

Axes: S seeds, W widths.
"""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from loriini.common.grouping import grouped
from loriini.compare.measures import Rows
from loriini.compare.seeds import over_seeds
from loriini.compare.trainings import unswept, variant_name
from loriini.reporting.curves import Floats


def measure_ladder(variants: Rows, cells: Rows) -> dict[str, Any]:
    """The ladder's `widths`, its `baseline`, and the points and the line of each of its `designs`.

    Only variants that a sweep chose and that are causal take part.
    """
    shown = [v for v in variants if v["chosen"] and v["causality"] != "none"]
    families = grouped(shown, lambda v: variant_name(v["design"], unswept(v["settings"])))
    return {
        "widths": sorted({v["width"] for v in variants}),
        "baseline": next(iter(families), None),
        "designs": [
            {"name": name, "variants": [v["name"] for v in family], **points_and_line(family, cells)}
            for name, family in families.items()
        ],
    }


def points_and_line(variants: Rows, cells: Rows) -> dict[str, Any]:
    """`widths`, `seeds`, `flops`, `loss` and, if there are several widths, `line` of one design's variants.

    Only seeds that were scored at every one of these widths count; without any, the result is empty. The loss
    is the mean over domains of the held-out loss, nats a token.
    """
    by_width: dict[int, dict[int, Mapping[str, Any]]] = {}
    for variant in variants:
        by_seed = {c["seed"]: c for c in cells if c["name"] == variant["name"] and is_scored(c)}
        if by_seed:
            by_width[variant["width"]] = by_seed
    seeds = sorted(set.intersection(*map(set, by_width.values()))) if by_width else []
    if not seeds:
        return {}
    flops_SW, loss_SW = (
        np.array([[of(by_seed[seed]) for by_seed in by_width.values()] for seed in seeds])
        for of in (lambda cell: cell["flops"], heldout_loss)
    )
    return {
        "widths": list(by_width),
        "seeds": seeds,
        "flops": flops_SW.mean(0).tolist(),
        "loss": [over_seeds(losses).to_dict() for losses in loss_SW.T.tolist()],
        **({"line": power_law(flops_SW, loss_SW)} if len(by_width) > 1 else {}),
    }


def is_scored(cell: Mapping[str, Any]) -> bool:
    """True if a training finished with a finite held-out loss above 0: lines are fitted to its logarithm."""
    return cell.get("state") == "finished" and "perplexity" in cell and 0 < heldout_loss(cell) < math.inf


def heldout_loss(cell: Mapping[str, Any]) -> float:
    """Mean over domains of the held-out loss, nats a token."""
    return fmean(map(math.log, cell["perplexity"].values()))


def power_law(flops_SW: Floats, loss_SW: Floats) -> dict[str, Any]:
    """`a` and `b` of loss = a · FLOPs^(−b), a line on logarithmic axes, by least squares for each seed.

    `a` is the geometric mean over seeds, `b` the mean with its t interval.
    """
    lines_S2 = [np.polyfit(np.log(x_W), np.log(y_W), 1) for x_W, y_W in zip(flops_SW, loss_SW, strict=True)]
    slope_S, height_S = np.array(lines_S2).T
    return {"a": math.exp(height_S.mean()), "b": over_seeds((-slope_S).tolist()).to_dict()}
