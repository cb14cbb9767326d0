"""The results of a comparison as one JSON object: every training, and every variant over its seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from loriini.common.folders import RUN
from loriini.common.grouping import grouped
from loriini.common.json_file import without_nan
from loriini.compare.fit import measure_ladder
from loriini.compare.measures import Row, Rows, is_number, training_measures
from loriini.compare.remarks import counted_first_segments, remarks, unequal_settings
from loriini.compare.seeds import InstanceLosses, geometric, mean_losses, over_seeds, paired_by_seed
from loriini.compare.trainings import Training, short_name
from loriini.evaluate.intervals import OVERALL, Difference, Documents, differences_by_domain
from loriini.train.config import read_run
from loriini.train.records.metrics import METRICS, read_records

Evaluations = Mapping[Path, Mapping[str, Any]]
"""Run folder → what `evaluate_on` returned, with `instance_losses`."""
Results = dict[str, Any]
DifferencesOf = Callable[[InstanceLosses, InstanceLosses], Mapping[str, Difference]]
"""`differences_by_domain` with the `documents` and `tokens` of the held-out text already given."""
Scores = Mapping[int, Mapping[str, Any]]
"""A variant's evaluations on held-out text by seed: `perplexity` (`with_mean`) and `instance_losses`."""

COMMON_TO_SEEDS = (
    *("name", "design", "settings", "width", "causality", "training_causality"),
    *("experts_vary", "parameters", "flops_per_token"),
)
"""What all cells of a variant have in common."""
USE_OF_EXPERTS = ("experts", "utilisation", "experts_in_use", "experts_per_decision", "experts_by_score")
SCORES = ("perplexity", "perplexity_all", "bits_per_byte")


def compare_trainings(
    trainings: Sequence[Training],
    evaluations: Evaluations,
    failures: Mapping[Path, str],
    documents: Documents | None = None,
) -> Results:
    """`cells`, `variants`, `baseline`, `remarks` and `ladder`; docs/compare.md has their keys.

    `failures`: run folder → why it failed. `documents`: see `differences_by_domain`.
    """
    cells = [
        training_result(training, evaluations.get(training.folder), failures.get(training.folder))
        for training in trainings
    ]
    tokens = next((evaluation["instance_tokens"] for evaluation in evaluations.values()), None)
    differences_of = partial(differences_by_domain, documents=documents, tokens=tokens)
    variants = variant_results(cells, scores_of(trainings, evaluations), differences_of)
    sizes = by_width(variants)
    largest = baseline_of(list(sizes.values())[-1])
    results = {
        "cells": cells,
        "variants": variants,
        "baseline": largest and largest["name"],
        "remarks": [
            *(remark for same_size in by_width(cells).values() for remark in remarks(same_size)),
            *unequal_settings(list(map(trained_with, trainings))),
            *counted_first_segments(trainings, evaluations),
        ],
    }
    return without_nan(results if None in sizes else {**results, "ladder": measure_ladder(variants, cells)})


def trained_with(training: Training) -> Training:
    """The training with the settings that its run recorded, in which `auto` is resolved."""
    path = training.folder / RUN
    return replace(training, run=read_run(path)[0]) if path.exists() else training


def variant_results(cells: Rows, scores: Mapping[str, Scores], differences_of: DifferencesOf) -> list[Row]:
    """Every variant over its seeds, whether a sweep chose it, and its difference from its size's baseline."""
    summaries = list(map(summarize, grouped(cells, itemgetter("name")).values()))
    best = chosen(summaries)
    variants: list[Row] = [{**summary, "chosen": summary["name"] in best} for summary in summaries]
    differences = dict[str, dict[str, Any]]()
    for of_size in by_width(variants).values():
        if baseline := baseline_of(of_size):
            causal = {v["name"]: scores[v["name"]] for v in of_size if v["causality"] != "none"}
            differences |= differences_from(baseline["name"], causal, differences_of)
    return [{**v, **differences.get(v["name"], {})} for v in variants]


def scores_of(trainings: Sequence[Training], evaluations: Evaluations) -> Mapping[str, Scores]:
    """Each variant's evaluations by seed, with the mean perplexity over domains; empty if it has none."""
    scores: dict[str, dict[int, Mapping[str, Any]]] = {training.variant: {} for training in trainings}
    for training in trainings:
        if evaluation := evaluations.get(training.folder):
            perplexity = with_mean(evaluation["perplexity"])
            scores[training.variant][training.seed] = {**evaluation, "perplexity": perplexity}
    return scores


def training_result(training: Training, evaluation: Row | None, failure: str | None) -> Row:
    """What a training is, what it measured, and its scores on held-out text."""
    design = training.design
    row: dict[str, Any] = {
        "name": training.variant,
        "design": training.run.name,
        "settings": dict(training.settings),
        **({} if training.width is None else {"width": training.width}),
        "seed": training.seed,
        "folder": training.folder.name,
        "causality": design.causality,
        "training_causality": design.training_causality,
        **({"experts_vary": True} if design.experts_vary else {}),
    }
    if failure is None or read_records(training.folder / METRICS):  # it may fail before its first step ends
        row |= training_measures(training)
    if failure is not None:
        row |= {"state": "failed", "error": failure}
    if evaluation:
        row |= {name: evaluation[name] for name in SCORES}
        row["mean_perplexity"] = fmean(evaluation["perplexity"].values())
        row["heldout_tokens"] = evaluation["tokens"]
        row["skip"] = evaluation["skip"]
    return row


def summarize(cells: Rows) -> Row:
    """A variant: means and intervals over the seeds that finished."""
    by_state = grouped(cells, lambda cell: cell.get("state"))
    finished = by_state.get("finished", [])
    losses = [cell["training_loss"] for cell in finished if is_number(cell["training_loss"])]
    first = next((cell for cell in (*finished, *cells) if "parameters" in cell), cells[0])
    return {
        **{key: first[key] for key in COMMON_TO_SEEDS if key in first},
        "seeds": [cell["seed"] for cell in cells],
        **{
            f"{state}_seeds": [cell["seed"] for cell in by_state.get(state, ())]
            for state in ("finished", "diverged", "failed")
        },
        **{
            key: fmean(cell[key] for cell in finished if key in cell)
            for key in USE_OF_EXPERTS
            if key in first and finished
        },
        **({"training_loss": over_seeds(losses).to_dict()} if losses else {}),
        **scores_over_seeds(finished),
    }


def scores_over_seeds(finished: Rows) -> dict[str, Any]:
    """`perplexity` by domain and over all, and `bits_per_byte`, of the cells that were scored, if any."""
    scored = [cell for cell in finished if is_number(cell.get("mean_perplexity"))]
    if not scored:
        return {}
    of_domains = {
        domain: [cell["perplexity"][domain] for cell in scored] for domain in scored[0]["perplexity"]
    }
    means = {OVERALL: [cell["mean_perplexity"] for cell in scored], **of_domains}
    return {
        "perplexity": {domain: geometric(values).to_dict() for domain, values in means.items()},
        "bits_per_byte": {
            domain: over_seeds([cell["bits_per_byte"][domain] for cell in scored]).to_dict()
            for domain in scored[0]["bits_per_byte"]
        },
    }


def by_width(rows: Iterable[Row]) -> dict[int | None, list[Row]]:
    """Cells or variants of each size, the smallest first; all under None without a ladder."""
    return dict(sorted(grouped(rows, lambda row: row.get("width")).items(), key=lambda item: item[0] or 0))


def chosen(variants: Rows) -> set[str]:
    """The names of the variants that a sweep chose: of those that differ in `optimizer.` settings, the best.

    The best has the most finished seeds and, among those with equally many, the lowest training loss in the
    last tenth of the steps; held-out text is not used. Finished seeds come first because the mean over the
    few that did not diverge would flatter a learning rate that is too high.
    """

    def rank(v: Row) -> tuple[int, float]:
        return -len(v["finished_seeds"]), v.get("training_loss", {}).get("mean", math.inf)

    return {min(alike, key=rank)["name"] for alike in grouped(variants, short_name).values()}


def baseline_of(variants: Rows) -> Row | None:
    """The variant that those of its size are compared with: the first that is chosen and causal."""
    return next((v for v in variants if v["chosen"] and v["causality"] != "none"), None)


def with_mean(perplexity: Mapping[str, float]) -> dict[str, float]:
    """Perplexity by domain, and the mean over the domains as OVERALL."""
    return {**perplexity, OVERALL: fmean(perplexity.values())}


def differences_from(
    baseline: str, scores: Mapping[str, Scores], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """Variant → its `difference` from the baseline by domain and over all, and `paired_seeds`.

    Seeds whose perplexity is not finite, and variants that share no seed with the baseline, are left out.
    """
    finite = {
        name: {seed: score for seed, score in by_seed.items() if is_number(score["perplexity"][OVERALL])}
        for name, by_seed in scores.items()
    }
    base = finite[baseline]
    paired = {
        name: sorted(by_seed.keys() & base.keys()) for name, by_seed in finite.items() if name != baseline
    }
    return {
        name: {"difference": difference(base, scores[name], seeds, differences_of), "paired_seeds": seeds}
        for name, seeds in paired.items()
        if seeds
    }


def difference(
    base: Scores, compared: Scores, seeds: Sequence[int], differences_of: DifferencesOf
) -> dict[str, dict[str, Any]]:
    """Domain → the `change` of perplexity, and its intervals over `seeds` and over `documents`."""
    losses = ([scores[seed]["instance_losses"] for seed in seeds] for scores in (base, compared))
    differences = {}
    for domain, over_documents in differences_of(*map(mean_losses, losses)).items():
        over_training = paired_by_seed(
            *({seed: scores[seed]["perplexity"][domain] for seed in seeds} for scores in (base, compared))
        )
        differences[domain] = {
            "change": over_training.change,
            "seeds": over_training.to_dict(),
            "documents": over_documents.to_dict(),
        }
    return differences
