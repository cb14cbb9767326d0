"""The results of a comparison as one JSON object: every cell, and every variant over its seeds."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from loriini.compare.laws import measure_ladder, settings_of
from loriini.compare.measures import AXES, LAST_SHARE, Cells, by_variant, is_number, training_measures
from loriini.compare.remarks import counted_first_segments, remarks
from loriini.compare.running import Trial
from loriini.compare.seeds import geometric, mean_losses, over_seeds, paired_by_seed
from loriini.evaluate.intervals import OVERALL, Difference, Documents, differences_by_domain
from loriini.json_file import without_nan
from loriini.model import LoriiniConfig
from loriini.model.loss import skipped_positions
from loriini.train.metrics import METRICS, read_metrics

Row = TypeVar("Row", bound=Mapping[str, Any])
Results = dict[str, Any]
Losses = Mapping[tuple[str, int], Mapping[str, list[float]]]
"""(variant, seed) → each held-out instance's loss by domain."""
DifferencesOf = Callable[..., Mapping[str, Difference]]
"""`differences_by_domain` of two models' losses on the held-out instances at hand."""

SCORES = ("perplexity", "perplexity_all", "bits_per_byte")


def compare_trials(
    trials: Sequence[Trial],
    evaluations: Mapping[Path, Mapping[str, Any]],
    failures: Mapping[Path, str],
    documents: Documents | None = None,
) -> Results:
    """`cells`, `variants`, `baseline`, `remarks` and `ladder` of the trials; docs/compare.md has their keys.

    `evaluations` (with `instance_losses`) and `failures` are by folder, `documents` those of the instances.
    """
    cells = [
        cell_result(trial, evaluations.get(trial.folder), failures.get(trial.folder)) for trial in trials
    ]
    losses = {
        (trial.cell.variant, trial.cell.seed): evaluations[trial.folder]["instance_losses"]
        for trial in trials
        if trial.folder in evaluations
    }
    variants = [summarize(own) for own in by_variant(cells).values()]
    tokens = next((e["instance_tokens"] for e in evaluations.values() if "instance_tokens" in e), None)
    differences_of = partial(differences_by_domain, documents=documents, tokens=tokens)
    sizes = by_width(variants)
    for own in sizes.values():
        compare_variants(own, by_variant(cells), losses, differences_of)
    largest = baseline_of(list(sizes.values())[-1])
    results = {
        "cells": cells,
        "variants": variants,
        "baseline": largest and largest["name"],
        "remarks": [
            *(remark for own in by_width(cells).values() for remark in remarks(own)),
            *counted_first_segments(trials, evaluations),
        ],
    }
    return without_nan(results if None in sizes else {**results, "ladder": measure_ladder(variants, cells)})


def by_width(rows: Iterable[Row]) -> dict[int | None, list[Row]]:
    """Cells or variants of each size, the smallest first; all under None where there is no ladder."""
    found = defaultdict[int | None, list[Row]](list)
    for row in rows:
        found[row.get("width")].append(row)
    return dict(sorted(found.items(), key=lambda item: item[0] or 0))


def baseline_of(variants: Sequence[Row]) -> Row | None:
    """The variant that those of its size are compared with."""
    return next((v for v in variants if v["chosen"] and v["causality"] != "none"), None)


def compare_variants(
    variants: Sequence[dict[str, Any]],
    cells: Mapping[str, Cells],
    losses: Losses,
    differences_of: DifferencesOf,
) -> None:
    """Add to variants of one size the chosen ones of each sweep, and their differences from the baseline."""
    choose_best(variants)
    baseline = baseline_of(variants)
    if baseline:
        for variant in variants:
            if variant["causality"] != "none":
                add_differences(variant, baseline, cells, losses, differences_of)
        add_equal_budgets(variants, baseline, cells)


def cell_result(trial: Trial, evaluation: Mapping[str, Any] | None, failure: str | None) -> dict[str, Any]:
    """One cell: what it is, what its training measured, and its scores on held-out text."""
    cell = trial.cell
    row: dict[str, Any] = {
        "name": cell.variant,
        "design": cell.run.name,
        "settings": dict(cell.settings),
        **({} if cell.width is None else {"width": cell.width}),
        "seed": cell.seed,
        "folder": trial.folder.name,
        "causality": cell.causality,
        "training_causality": cell.training_causality,
        "length": cell.run.length,
        "batch_size": cell.run.batch_size,
        "planned_steps": cell.run.steps,
        # of mixtures alone: a dense model has nothing to warm up
        **({"dense_share": cell.run.warmup.dense_share} if cell.run.model.num_experts > 1 else {}),
        **unlike_others(cell.run.config(1, eos_token_id=0)),
    }
    if failure is None or read_metrics(trial.folder / METRICS):  # it may fail before its first step ends
        row |= training_measures(trial)
    if failure is not None:
        row |= {"state": "failed", "error": failure}
    if evaluation:
        row |= {name: evaluation[name] for name in SCORES}
        row["mean_perplexity"] = fmean(evaluation["perplexity"].values())
        row["heldout_tokens"] = evaluation["tokens"]
        row["skip"] = evaluation["skip"]
    return row


def unlike_others(config: LoriiniConfig) -> dict[str, Any]:
    """What keeps numbers of a design from being compared with those of others; empty for most.

    `experts_vary`: parameters and FLOPs count all experts; `loss_skips`: tokens of a document that the
    training loss leaves out.
    """
    vary = config.num_experts > 1 and config.routing.experts_vary
    skips = skipped_positions(config)
    return {**({"experts_vary": True} if vary else {}), **({"loss_skips": skips} if skips else {})}


def summarize(cells: Cells) -> dict[str, Any]:
    """A variant: means and intervals over the seeds that finished."""
    finished = [cell for cell in cells if cell.get("state") == "finished"]
    first = next((cell for cell in (*finished, *cells) if "parameters" in cell), cells[0])
    scored = [cell for cell in finished if is_number(cell.get("mean_perplexity"))]
    same = ("name", "design", "settings", "width", "causality", "training_causality")
    unlike = ("experts_vary", "loss_skips")
    use = ("experts", "utilisation", "experts_in_use", "experts_per_decision", "experts_by_score")
    variant: dict[str, Any] = {
        **{key: first[key] for key in (*same, *unlike, "parameters", "flops_per_token") if key in first},
        "seeds": [cell["seed"] for cell in cells],
        "finished_seeds": [cell["seed"] for cell in finished],
        "diverged_seeds": [cell["seed"] for cell in cells if cell.get("state") == "diverged"],
        "failed_seeds": [cell["seed"] for cell in cells if cell.get("state") == "failed"],
        **{
            key: fmean(cell[key] for cell in finished if key in cell)
            for key in use
            if key in first and finished
        },
    }
    trained = [cell["training_loss"] for cell in finished if is_number(cell["training_loss"])]
    if trained:
        variant["training_loss"] = over_seeds(trained).to_dict()
    if scored:
        means = {OVERALL: geometric([cell["mean_perplexity"] for cell in scored]).to_dict()}
        for domain in scored[0]["perplexity"]:
            means[domain] = geometric([cell["perplexity"][domain] for cell in scored]).to_dict()
        variant["perplexity"] = means
        variant["bits_per_byte"] = {
            domain: over_seeds([cell["bits_per_byte"][domain] for cell in scored]).to_dict()
            for domain in scored[0]["bits_per_byte"]
        }
    return variant


def choose_best(variants: Sequence[dict[str, Any]]) -> None:
    """Mark variants as `chosen`: of those that differ in `optimizer.` settings alone, the best.

    The best has the most finished seeds and, among those with equally many, the lowest training loss in the
    last tenth of the steps; held-out text is not used. Finished seeds come first because the mean over the
    few that did not diverge would misrepresent a rate.
    `edge` names the settings whose chosen value is the smallest or largest of several.
    """
    families = defaultdict[tuple[Any, ...], list[dict[str, Any]]](list)
    for variant in variants:
        families[variant["design"], tuple(settings_of(variant).items())].append(variant)
    for family in families.values():
        best = min(
            family,
            key=lambda v: (-len(v["finished_seeds"]), v.get("training_loss", {}).get("mean", math.inf)),
        )
        for variant in family:
            variant["chosen"] = variant is best
        best["edge"] = [
            name for name in best["settings"] if name.startswith("optimizer.") and at_edge(name, best, family)
        ]


def at_edge(name: str, best: Mapping[str, Any], family: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a number of the best variant is the smallest or largest that was tried."""
    try:
        tried = {float(variant["settings"][name]) for variant in family}
    except ValueError:
        return False
    return len(tried) > 1 and float(best["settings"][name]) in (min(tried), max(tried))


def add_differences(
    variant: dict[str, Any],
    baseline: Mapping[str, Any],
    cells: Mapping[str, Cells],
    losses: Losses,
    differences_of: DifferencesOf,
) -> None:
    """Add `difference` to the baseline, by domain and over all, with an interval for each uncertainty."""
    scores, other = (
        {cell["seed"]: cell for cell in cells[v["name"]] if is_number(cell.get("mean_perplexity"))}
        for v in (variant, baseline)
    )
    seeds = sorted(scores.keys() & other.keys())
    if variant is baseline or not seeds:
        return
    mine, theirs = (
        mean_losses({seed: losses[v["name"], seed] for seed in seeds}, seeds) for v in (variant, baseline)
    )
    difference = {}
    for domain, over_text in differences_of(theirs, mine).items():
        over_training = paired_by_seed(
            {seed: perplexity_of(other[seed], domain) for seed in seeds},
            {seed: perplexity_of(scores[seed], domain) for seed in seeds},
        )
        difference[domain] = {
            "change": over_training.change,
            "seeds": over_training.to_dict(),
            "documents": over_text.to_dict(),
        }
    variant["difference"] = difference
    variant["paired_seeds"] = seeds


def perplexity_of(cell: Mapping[str, Any], domain: str) -> float:
    """A domain's perplexity, or the mean over domains for OVERALL."""
    value = cell["mean_perplexity"] if domain == OVERALL else cell["perplexity"][domain]
    return float(value)


def add_equal_budgets(
    variants: Sequence[dict[str, Any]], baseline: Mapping[str, Any], cells: Mapping[str, Cells]
) -> None:
    """Add `equal`: training loss at the tokens, FLOPs and seconds that every variant there spent.

    The loss is the mean over the last tenth of the budget; differences from the baseline are paired by seed.
    Not there is whose loss counts other tokens than the baseline's, and at equal FLOPs whose FLOPs count more
    experts than it uses.
    """
    shown = [v for v in variants if v["chosen"] and v["training_causality"] != "none" and v["finished_seeds"]]
    shown = [v for v in shown if v.get("loss_skips") == baseline.get("loss_skips")]
    if baseline not in shown:
        return
    for axis in AXES:
        there = [v for v in shown if axis != "flops" or not v.get("experts_vary")]
        finished = {v["name"]: [c for c in cells[v["name"]] if c.get("state") == "finished"] for v in there}
        budget = min((cell[axis] for own in finished.values() for cell in own), default=0.0)
        losses = {
            name: {cell["seed"]: loss_at(cell["curve"], axis, budget) for cell in own}
            for name, own in finished.items()
        }
        for variant in there:
            mine, theirs = losses[variant["name"]], losses.get(baseline["name"], {})
            paired = [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
            found = {"budget": budget, "loss": over_seeds(list(mine.values())).to_dict()}
            if variant is not baseline and paired:
                found["difference"] = over_seeds(paired).to_dict()
            variant.setdefault("equal", {})[axis] = found


def loss_at(curve: Mapping[str, Sequence[float | None]], axis: str, budget: float) -> float:
    """Mean training loss over the last tenth of a budget; NaN where no loss there was finite."""
    spent = np.array(curve[axis], np.float64)
    loss = np.array(curve["loss"], np.float64)
    near = loss[(spent > (1 - LAST_SHARE) * budget) & (spent <= budget * (1 + 1e-9))]
    near = near if len(near) else loss[[np.searchsorted(spent, budget)]]
    return float(np.mean(near[np.isfinite(near)])) if np.isfinite(near).any() else math.nan
