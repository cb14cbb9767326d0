"""Differences of a comparison's variants from the baseline: on held-out text, and at equal budgets."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from loriini.compare.measures import AXES, LAST_SHARE, CellRows, is_number
from loriini.compare.rows import VariantRow
from loriini.compare.seeds import InstanceLosses, mean_losses, over_seeds, paired_by_seed
from loriini.compare.variants import in_state
from loriini.evaluate.intervals import OVERALL, Difference

DifferencesOf = Callable[[InstanceLosses, InstanceLosses], Mapping[str, Difference]]
"""`differences_by_domain` of two models' losses on the held-out instances at hand."""


Scores = Mapping[int, Mapping[str, Any]]
"""A variant's evaluations on held-out text, with `perplexity` and `instance_losses`, by seed."""


def with_mean(perplexity: Mapping[str, float]) -> dict[str, float]:
    """Perplexity by domain, and the mean over the domains as OVERALL."""
    return {**perplexity, OVERALL: fmean(perplexity.values())}


def differences_from(
    baseline: str, scores: Mapping[str, Scores], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """By name of each other variant, its `difference` from the baseline by domain and over all, and
    `paired_seeds`.

    Seeds whose perplexity is not finite are left out, and so is a variant that shares none with the baseline.
    """
    finite = {name: finite_scores(by_seed) for name, by_seed in scores.items()}
    base = finite[baseline]
    paired = {
        name: sorted(by_seed.keys() & base.keys()) for name, by_seed in finite.items() if name != baseline
    }
    return {
        name: {"difference": difference(base, scores[name], seeds, differences_of), "paired_seeds": seeds}
        for name, seeds in paired.items()
        if seeds
    }


def finite_scores(scores: Scores) -> Scores:
    """Those of a finite perplexity."""
    return {
        seed: score for seed, score in scores.items() if is_number(with_mean(score["perplexity"])[OVERALL])
    }


def difference(
    base: Scores, compared: Scores, seeds: Sequence[int], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """By domain, the `change` of perplexity, with its interval over `seeds` and that over the `documents`."""
    losses = ([scores[seed]["instance_losses"] for seed in seeds] for scores in (base, compared))
    perplexities = [
        {seed: with_mean(scores[seed]["perplexity"]) for seed in seeds} for scores in (base, compared)
    ]
    differences = {}
    for domain, over_documents in differences_of(*map(mean_losses, losses)).items():
        over_training = paired_by_seed(
            *({seed: by_domain[domain] for seed, by_domain in each.items()} for each in perplexities)
        )
        differences[domain] = {
            "change": over_training.change,
            "seeds": over_training.to_dict(),
            "documents": over_documents.to_dict(),
        }
    return differences


def equal_budgets(
    variants: Sequence[VariantRow], baseline: VariantRow, cells: Mapping[str, CellRows]
) -> dict[str, dict[str, Any]]:
    """By name, `equal`: by axis, the training loss at the tokens, FLOPs or seconds that all variants spent.

    A variant is left out if its loss counts other tokens than the baseline's and, at equal FLOPs, if its
    FLOPs count experts it does not use. Empty if the baseline is left out.
    """
    shown = [v for v in variants if v["chosen"] and v["training_causality"] != "none" and v["finished_seeds"]]
    shown = [v for v in shown if v.get("loss_skips") == baseline.get("loss_skips")]
    if baseline not in shown:
        return {}
    comparable = {axis: [v for v in shown if axis != "flops" or not v.get("experts_vary")] for axis in AXES}
    finished = {v["name"]: in_state(cells[v["name"]], "finished") for v in shown}
    losses = {
        axis: losses_at_budget(axis, {v["name"]: finished[v["name"]] for v in compared}, baseline["name"])
        for axis, compared in comparable.items()
    }
    return {
        name: {"equal": {axis: of_axis[name] for axis, of_axis in losses.items() if name in of_axis}}
        for name in finished
    }


def losses_at_budget(axis: str, cells: Mapping[str, CellRows], baseline: str) -> dict[str, dict[str, Any]]:
    """By variant: the `budget` of an axis that all cells spent, the `loss` there and its `difference`.

    The loss is the mean over the last tenth of the budget; differences from the baseline are paired by seed.
    """
    budget = min((cell[axis] for trained in cells.values() for cell in trained), default=0.0)
    losses = {
        name: {cell["seed"]: loss_at(cell["curve"], axis, budget) for cell in trained}
        for name, trained in cells.items()
    }
    before = losses.get(baseline, {})
    results = {}
    for name, after in losses.items():
        paired = [after[seed] - before[seed] for seed in sorted(after.keys() & before.keys())]
        compared = name != baseline and paired
        results[name] = {
            "budget": budget,
            "loss": over_seeds(list(after.values())).to_dict(),
            **({"difference": over_seeds(paired).to_dict()} if compared else {}),
        }
    return results


def loss_at(curve: Mapping[str, Sequence[float | None]], axis: str, budget: float) -> float:
    """Mean training loss over the last tenth of a budget; NaN where no loss there was finite.

    Each point is the mean since the one before it, and counts by how much of this lies in the tenth.
    """
    spent = np.array(curve[axis], np.float64)
    loss = np.array(curve["loss"], np.float64)
    begins = np.maximum(np.append(0.0, spent[:-1]), (1 - LAST_SHARE) * budget)
    inside = np.where(np.isfinite(loss), np.clip(np.minimum(spent, budget) - begins, 0, None), 0.0)
    return float(np.average(np.nan_to_num(loss), weights=inside)) if inside.any() else math.nan
