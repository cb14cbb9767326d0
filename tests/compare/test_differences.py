"""Differences from a baseline: on held-out text, and in training losses at budgets that all spent."""

import math
from statistics import fmean
from typing import Any

import numpy as np

from loriini.compare.differences import differences_from, equal_budgets, loss_at
from loriini.evaluate.intervals import differences_by_domain


def score(loss: float) -> dict[str, Any]:
    """A training on a domain of three instances."""
    return {"perplexity": {"a": math.exp(loss)}, "instance_losses": {"a": [loss] * 3}}


def test_a_seed_whose_perplexity_is_not_finite_is_in_no_difference() -> None:
    scores = {
        "dense": {0: score(2.0), 1: score(2.0), 2: score(math.nan)},
        "lory": {0: score(1.0), 1: score(math.inf), 2: score(1.0)},
        "diverged": {0: score(math.nan)},
    }
    found = differences_from("dense", scores, differences_by_domain)
    assert set(found) == {"lory"}
    assert found["lory"]["paired_seeds"] == [0]
    assert math.isclose(found["lory"]["difference"]["a"]["change"], math.expm1(-1.0))


def test_the_loss_at_a_budget_is_that_of_its_last_tenth() -> None:
    curve = {"tokens": [float(i) for i in range(1, 31)], "loss": [float(i) for i in range(1, 31)]}
    assert loss_at(curve, "tokens", 20.0) == fmean([19.0, 20.0])
    assert loss_at(curve, "tokens", 30.0) == fmean([28.0, 29.0, 30.0])


def test_the_loss_at_a_budget_does_not_depend_on_the_points_of_a_curve() -> None:
    """Curves are means over windows; here of a loss that falls by 1 a step, in windows of 1 to 7 steps."""
    found = []
    for window in (1, 2, 3, 7):
        ends = np.arange(window, 701, window).astype(float)
        found.append(
            loss_at({"tokens": ends.tolist(), "loss": (-ends + window / 2).tolist()}, "tokens", 100.0)
        )
    assert max(found) - min(found) < 0.3
    assert math.isnan(loss_at({"tokens": [1.0, 2.0], "loss": [1.0, math.nan]}, "tokens", 2.0))


def cell(name: str, flops: float) -> dict[str, Any]:
    """A finished training of ten steps."""
    return {
        "name": name,
        "seed": 0,
        "state": "finished",
        "tokens": 10.0,
        "flops": flops,
        "seconds": 1.0,
        "curve": {
            "tokens": [float(i) for i in range(1, 11)],
            "flops": [flops * i / 10 for i in range(1, 11)],
            "seconds": [i / 10 for i in range(1, 11)],
            "loss": [float(-i) for i in range(1, 11)],
        },
    }


def test_what_counts_otherwise_is_not_compared_at_equal_budgets() -> None:
    cells = {
        name: [cell(name, flops)] for name, flops in (("dense", 100.0), ("relu", 50.0), ("skips", 100.0))
    }
    about = {"chosen": True, "training_causality": "strict", "finished_seeds": [0]}
    unlike = {"dense": {}, "relu": {"experts_vary": True}, "skips": {"loss_skips": 64}}
    variants = [{"name": name, **about, **unlike[name]} for name in cells]
    found = {name: of["equal"] for name, of in equal_budgets(variants, variants[0], cells).items()}
    assert {name: set(axes) for name, axes in found.items()} == {
        "dense": {"tokens", "flops", "seconds"},
        "relu": {"tokens", "seconds"},
    }
    assert found["dense"]["flops"]["budget"] == 100.0
    assert "difference" in found["relu"]["tokens"]
    assert "difference" not in found["dense"]["tokens"]
    varying = equal_budgets(variants[1:], variants[1], cells)  # a baseline whose FLOPs are not known
    assert set(varying["relu"]["equal"]) == {"tokens", "seconds"}
    assert not equal_budgets(variants[1:], variants[0], cells)
