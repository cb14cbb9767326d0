"""An item's results as one JSON object, from its measurements; and all items of a folder as one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loriini.common.json_file import read_object
from loriini.papers.published import ITEMS, published_values
from loriini.papers.reproduce.claim import deciding, overall, verdicts
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS
from loriini.papers.reproduce.measured import Measured, Measures
from loriini.papers.reproduce.plan import Experiment, ItemTraining
from loriini.papers.reproduce.quantities import rounded, rounded_interval
from loriini.reporting.wording import SEES_LATER

RESULTS = "results.json"
DAMAGED = "remove it, and reproduce the item again"
"""What to do about a damaged file of results."""
SEES_LATER_IN_TRAINING = " (sees later tokens in training)"
MeasuredTraining = tuple[ItemTraining, Measures]
"""A training of an item and what was measured of it, nothing if it failed."""


def item_results(
    experiment: Experiment,
    trainings: Sequence[MeasuredTraining],
    extra: Mapping[str, Any],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """An item's claims, tables and charts on every text, its trainings, and the verdict on its finding.

    `extra`: what was computed without a training. `about`: scale, seeds, text, machine and date.
    """
    texts, item = by_text(trainings, extra), ITEMS[experiment.item]
    judged = [(m.text, claim) for m in texts for claim in experiment.claims(m)]
    claims = [claim for _, claim in judged]
    found = verdicts(claims)
    charts = ({"text": m.text, **chart} for m in texts for chart in experiment.charts(m))
    remarks = (item.here, *later_tokens(trainings), *left_out(trainings))
    return {
        "item": item.id,
        "title": item.title,
        "source": item.source,
        "finding": item.finding,
        "open_in_the_paper": item.note,
        "published": [asdict(value) for value in published_values(item.id)],
        "differs": "; ".join(filter(None, remarks)),
        **about,
        "cells": [describe(training, measures) for training, measures in trainings],
        "measured": {m.text: table(experiment, m) for m in texts},
        "claims": [{"text": text, **claim.to_dict()} for text, claim in judged],
        "charts": [chart for chart in charts if chart.get("series") or chart.get("panels")],
        "verdict": overall(found),
        "decided_by": deciding(claims, found),
    }


def left_out(trainings: Iterable[MeasuredTraining]) -> Iterable[str]:
    """Remarks on the trainings that did not finish and are in no mean.

    Divergence is not random, so leaving them out may bias a mean.
    """
    for training, measures in trainings:
        if (state := state_of(measures)) != "finished":
            yield f"{training.row} with seed {training.seed} {state} and is left out of all means"


def state_of(measures: Measures) -> str:
    """The state of a training; one without measures failed."""
    state: str = measures.get("training", {}).get("state", "failed")
    return state


def later_tokens(trainings: Iterable[MeasuredTraining]) -> Iterable[str]:
    """Remarks on rows whose routing sees later tokens."""
    marks = {mark(describe_causality(training)) for training, _ in trainings}
    for marker, losses in ((SEES_LATER, "losses"), (SEES_LATER_IN_TRAINING, "training losses")):
        if marker in marks:
            yield f"{losses} of rows marked{marker} are too low to compare with causal models'"


def mark(cell: Mapping[str, Any]) -> str:
    """The mark after the name of a cell's row; empty if it is causal."""
    if cell.get("causality") == "none":
        return SEES_LATER
    return SEES_LATER_IN_TRAINING if cell.get("training_causality") == "none" else ""


def describe_causality(training: ItemTraining) -> dict[str, str]:
    """A cell's causality in evaluation and in training."""
    design = training.design
    return {"causality": design.causality, "training_causality": design.training_causality}


def by_text(trainings: Iterable[MeasuredTraining], extra: Mapping[str, Any]) -> Sequence[Measured]:
    """The finished trainings on each text; if nothing is trained, a single `Measured` without a text."""
    rows_by_text: dict[str, dict[str, dict[int, Measures]]] = {}
    for training, measures in trainings:
        by_seed = rows_by_text.setdefault(training.text, {}).setdefault(training.row, {})
        if state_of(measures) == "finished":
            by_seed[training.seed] = measures
    if not rows_by_text:
        return [Measured({}, "", extra)]
    return [Measured(rows, text, extra) for text, rows in rows_by_text.items()]


def table(experiment: Experiment, m: Measured) -> dict[str, dict[str, dict[str, float | None]]]:
    """By row and column, the mean and interval of what was measured on a text or computed."""
    rows = m.rows or m.extra.get("rows", ITEMS[experiment.item].runs)
    columns = {row: experiment.columns(m, row) for row in rows if m.rows.get(row) or m.extra}
    return {
        row: {name: rounded_interval(values) for name, values in of_row.items() if values}
        for row, of_row in columns.items()
    }


def describe(training: ItemTraining, measures: Measures) -> dict[str, Any]:
    """A cell: row, text, run, settings and seed, and its numbers; curves are in the charts."""
    run = training.run
    parts = ("model", "routing", "optimizer", "warmup", "steps", "batch_size", "length", "precision")
    settings = {name: value for name, value in run.to_dict().items() if name in parts}
    return {
        "row": training.row,
        "text": training.text,
        "run": run.name,
        "seed": run.seed,
        "folder": training.folder.name,
        "state": state_of(measures),
        **describe_causality(training),
        "settings": {**settings, "corpus": [path.name for path in run.corpus]},
        "measures": numbers(measures),
    }


def numbers(value: Any) -> Any:
    """The numbers and names of a nested object, without its lists."""
    if isinstance(value, Mapping):
        parts = {key: numbers(part) for key, part in value.items() if not isinstance(part, list)}
        return {key: part for key, part in parts.items() if part != {}}
    return rounded(value) if isinstance(value, float) else value


def read_items(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of every item in a folder, in the order of `all`. InputError for a damaged file."""
    paths = {name: folder / name / RESULTS for name in EXPERIMENTS}
    return {name: read_object(path, DAMAGED) for name, path in paths.items() if path.exists()}
