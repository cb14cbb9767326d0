"""The results of a comparison as one JSON object: every training, and every variant over its seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from loriini.common.grouping import grouped
from loriini.common.hub import RUN
from loriini.common.json_file import without_nan
from loriini.compare.fit import measure_ladder
from loriini.compare.measures import Row, Rows, training_measures
from loriini.compare.remarks import counted_first_segments, remarks, unequal_settings
from loriini.compare.trainings import Training
from loriini.compare.variants import (
    DifferencesOf,
    Scores,
    baseline_of,
    by_width,
    chosen,
    differences_from,
    summarize,
    with_mean,
)
from loriini.evaluate.intervals import Documents, differences_by_domain
from loriini.train.config import read_run
from loriini.train.records.metrics import METRICS, read_records

Evaluations = Mapping[Path, Mapping[str, Any]]
"""What `evaluate` returned with `instance_losses`, by the folder of the run."""
Results = dict[str, Any]

SCORES = ("perplexity", "perplexity_all", "bits_per_byte")


def compare_trainings(
    trainings: Sequence[Training],
    evaluations: Evaluations,
    failures: Mapping[Path, str],
    documents: Documents | None = None,
) -> Results:
    """`cells`, `variants`, `baseline`, `remarks` and `ladder`; docs/compare.md has their keys.

    `failures` are by folder, `documents` those of the instances.
    """
    cells = [
        training_result(training, evaluations.get(training.folder), failures.get(training.folder))
        for training in trainings
    ]
    tokens = next((evaluation["instance_tokens"] for evaluation in evaluations.values()), None)
    differences_of = partial(differences_by_domain, documents=documents, tokens=tokens)
    variants = variant_results(
        cells,
        scores_of(trainings, evaluations),
        differences_of,
        of_grid=all(training.of_grid for training in trainings),
    )
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
    """The training with the settings that it was trained with, where some were `auto`."""
    path = training.folder / RUN
    return replace(training, run=read_run(path)[0]) if path.exists() else training


def variant_results(
    cells: Rows, scores: Mapping[str, Scores], differences_of: DifferencesOf, *, of_grid: bool = True
) -> list[Row]:
    """Every variant: over its seeds, whether a sweep chose it, and compared with its size's baseline."""
    summaries = list(map(summarize, grouped(cells, itemgetter("name")).values()))
    best = chosen(summaries) if of_grid else {summary["name"] for summary in summaries}
    variants: list[Row] = [{**summary, "chosen": summary["name"] in best} for summary in summaries]
    differences = dict[str, dict[str, Any]]()
    for of_size in by_width(variants).values():
        if baseline := baseline_of(of_size):
            causal = {v["name"]: scores[v["name"]] for v in of_size if v["causality"] != "none"}
            differences |= differences_from(baseline["name"], causal, differences_of)
    return [{**v, **differences.get(v["name"], {})} for v in variants]


def scores_of(trainings: Sequence[Training], evaluations: Evaluations) -> Mapping[str, Scores]:
    """The evaluations of each variant, the mean over domains added; empty for one without any."""
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
