"""The results of a comparison as one JSON object: every cell, and every variant over its seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from loriini.common.hub import RUN
from loriini.common.json_file import without_nan
from loriini.compare.cells import Cell
from loriini.compare.differences import DifferencesOf, Scores, differences_from, equal_budgets
from loriini.compare.fit import measure_ladder
from loriini.compare.measures import CellRows, by_variant, training_measures
from loriini.compare.remarks import counted_first_segments, remarks, unequal_settings
from loriini.compare.rows import VariantRow
from loriini.compare.running import Trial
from loriini.compare.variants import baseline_of, by_width, choices, summarize
from loriini.evaluate.intervals import Documents, differences_by_domain
from loriini.model import LoriiniConfig
from loriini.train.config import read_run
from loriini.train.records.metrics import METRICS, read_records

Evaluations = Mapping[Path, Mapping[str, Any]]
"""What `evaluate` returned with `instance_losses`, by the folder of the run."""
Results = dict[str, Any]

SCORES = ("perplexity", "perplexity_all", "bits_per_byte")


def compare_trials(
    trials: Sequence[Trial],
    evaluations: Evaluations,
    failures: Mapping[Path, str],
    documents: Documents | None = None,
) -> Results:
    """`cells`, `variants`, `baseline`, `remarks` and `ladder` of the trials; docs/compare.md has their keys.

    `failures` are by folder, `documents` those of the instances.
    """
    cells = [
        cell_result(trial, evaluations.get(trial.folder), failures.get(trial.folder)) for trial in trials
    ]
    tokens = next((e["instance_tokens"] for e in evaluations.values() if "instance_tokens" in e), None)
    differences_of = partial(differences_by_domain, documents=documents, tokens=tokens)
    variants = variant_results(
        cells,
        scores_of(trials, evaluations),
        differences_of,
        of_grid=all(trial.cell.of_grid for trial in trials),
    )
    sizes = by_width(variants)
    largest = baseline_of(list(sizes.values())[-1])
    results = {
        "cells": cells,
        "variants": variants,
        "baseline": largest and largest["name"],
        "remarks": [
            *(remark for same_size in by_width(cells).values() for remark in remarks(same_size)),
            *unequal_settings(list(map(trained_cell, trials))),
            *counted_first_segments(trials, evaluations),
        ],
    }
    return without_nan(results if None in sizes else {**results, "ladder": measure_ladder(variants, cells)})


def trained_cell(trial: Trial) -> Cell:
    """A trial's cell with the settings that it was trained with, where some were `auto`."""
    path = trial.folder / RUN
    return replace(trial.cell, run=read_run(path)[0]) if path.exists() else trial.cell


def variant_results(
    cells: CellRows, scores: Mapping[str, Scores], differences_of: DifferencesOf, *, of_grid: bool = True
) -> list[VariantRow]:
    """Every variant: over its seeds, whether a sweep chose it, and compared with its size's baseline."""
    cells_of_variant: Mapping[str, CellRows] = by_variant(cells)
    summaries = list(map(summarize, cells_of_variant.values()))
    chosen = choices(summaries, of_grid=of_grid)
    variants: list[VariantRow] = [{**summary, **chosen[summary["name"]]} for summary in summaries]
    differences, equal = dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    for of_size in by_width(variants).values():
        if baseline := baseline_of(of_size):
            causal = {v["name"]: scores[v["name"]] for v in of_size if v["causality"] != "none"}
            differences |= differences_from(baseline["name"], causal, differences_of)
            equal |= equal_budgets(of_size, baseline, cells_of_variant)
    compared: list[Any] = [
        {**v, **differences.get(v["name"], {}), **equal.get(v["name"], {})} for v in variants
    ]
    return compared


def scores_of(trials: Sequence[Trial], evaluations: Evaluations) -> Mapping[str, Scores]:
    """The evaluations of each variant; empty for one without any."""
    scores: dict[str, dict[int, Mapping[str, Any]]] = {trial.cell.variant: {} for trial in trials}
    for trial in trials:
        if trial.folder in evaluations:
            scores[trial.cell.variant][trial.cell.seed] = evaluations[trial.folder]
    return scores


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
        **comparison_caveats(cell.run.config()),
    }
    if failure is None or read_records(trial.folder / METRICS):  # it may fail before its first step ends
        row |= training_measures(trial)
    if failure is not None:
        row |= {"state": "failed", "error": failure}
    if evaluation:
        row |= {name: evaluation[name] for name in SCORES}
        row["mean_perplexity"] = fmean(evaluation["perplexity"].values())
        row["heldout_tokens"] = evaluation["tokens"]
        row["skip"] = evaluation["skip"]
    return row


def comparison_caveats(config: LoriiniConfig) -> dict[str, Any]:
    """What keeps a design's numbers from being compared with those of others; empty for most designs.

    `experts_vary`: parameters and FLOPs count all experts; `loss_skips`: tokens of segment 1 that the
    training loss leaves out.
    """
    vary = config.design.experts_vary
    skips = config.skipped_positions
    return {**({"experts_vary": True} if vary else {}), **({"loss_skips": skips} if skips else {})}
