"""An item's results as one JSON object, from its measurements; and all items of a folder as one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loriini.common.checks import by_dotted_name
from loriini.common.json_file import read_object
from loriini.papers.published import published_values
from loriini.papers.published.items import ITEMS
from loriini.papers.reproduce.claims.claim import HOLDS, Claim, overall, verdicts
from loriini.papers.reproduce.claims.measured import Measured, Measures
from loriini.papers.reproduce.claims.quantities import rounded, rounded_interval
from loriini.papers.reproduce.claims.reasons import Finding
from loriini.papers.reproduce.claims.wording import sentence
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS, ITEM_ORDER
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.experiments.throughput import conditions
from loriini.papers.reproduce.plan import ItemTraining
from loriini.papers.reproduce.scales import find_scale, scaled_run
from loriini.reporting.wording import SEES_LATER
from loriini.train.config import TrainConfig

RESULTS = "results.json"
DAMAGED = "remove it, and reproduce the item again"
"""What to do about a damaged file of results."""
MOST_NAMED = 3
"""Settings that the reason for leaving an item out names."""
MeasuredTraining = tuple[ItemTraining, Measures]
"""A training of an item and what was measured of it, nothing if it failed."""


def item_results(
    experiment: Experiment,
    own: Sequence[MeasuredTraining],
    further: Sequence[MeasuredTraining],
    extra: Mapping[str, Any],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """An item's claims, tables and charts on every text, its trainings, and the verdict on its finding.

    `further` are the trainings of its reasons that are done; a reason without them is left out. `extra` is
    what was computed without a training, and `about` how all was made.
    """
    trainings, texts = (*own, *further), by_text(own, extra)
    claims, decisive, verdict = judge(experiment.claims, texts)
    remarks = [experiment.note, extra.get("remark"), *later_tokens(own), *experiment.remarks(texts[0])]
    if experiment.timed:
        remarks += conditions([*experiment.published.runs.values()], find_scale(about["scale"]))
    charts = ({"text": m.text, **chart} for m in texts for chart in experiment.charts(m))
    with_further = by_text(trainings, extra)
    judged = (reason.to_dict(experiment.claims, decisive, with_further) for reason in experiment.reasons)
    return {
        "item": experiment.item,
        **as_published(experiment.item),
        "differs": "; ".join(filter(None, (*remarks, *left_out(trainings)))),
        **about,
        "cells": [describe(training, measures) for training, measures in trainings],
        "measured": {m.text: table(experiment, m) for m in texts},
        "claims": claims,
        "charts": [chart for chart in charts if chart.get("series") or chart.get("panels")],
        "likely_reasons": likely_reasons(experiment, decisive, texts),
        "reasons": [reason for reason in judged if reason],
        "verdict": verdict,
        "sentence": sentence(verdict, claims, about["scale"]),
    }


def judge(
    finding: Finding, texts: Iterable[Measured]
) -> tuple[list[dict[str, Any]], list[tuple[str, Claim]], str]:
    """Every claim of a finding as a JSON object, by text those that decided against it, and the verdict."""
    judged = [(measured.text, claim) for measured in texts for claim in finding(measured)]
    claims = [{"text": text, **claim.to_dict()} for text, claim in judged]
    verdict = overall(claims)
    pairs = zip(judged, verdicts(claims), strict=True)
    decisive = [claim_of_text for claim_of_text, outcome in pairs if outcome == verdict != HOLDS]
    return claims, decisive, verdict


def as_published(name: str) -> dict[str, Any]:
    """What an item is in its paper: title, place, finding, what is left open, and the printed values."""
    item = ITEMS[name]
    return {
        "title": item.title,
        "source": item.source,
        "finding": item.finding,
        "open_in_the_paper": item.note,
        "published": [asdict(value) for value in published_values(name)],
    }


def left_out(trainings: Iterable[MeasuredTraining]) -> Iterable[str]:
    """The trainings that did not finish: no mean has them, and those that diverge are not a chance sample."""
    for training, measures in trainings:
        if (state := state_of(measures)) != "finished":
            yield f"{training.row} with seed {training.trial.seed} {state} and is left out of all means"


def state_of(measures: Measures) -> str:
    """The state of a training; one without measures failed."""
    state: str = measures.get("training", {}).get("state", "failed")
    return state


SEES_LATER_IN_TRAINING = " (sees later tokens in training)"


def later_tokens(trainings: Iterable[MeasuredTraining]) -> Iterable[str]:
    """What to know of rows whose routing sees later tokens."""
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
    cell = training.trial
    return {"causality": cell.causality, "training_causality": cell.training_causality}


def likely_reasons(
    experiment: Experiment, decisive: Sequence[tuple[str, Claim]], texts: Sequence[Measured]
) -> list[str]:
    """The names of the reasons that are about a claim which decided the verdict."""
    claims = {measured.text: [c for text, c in decisive if text == measured.text] for measured in texts}
    return [
        reason.name
        for reason in experiment.reasons
        if any(reason.concerns(experiment.claims, claims[m.text], m) for m in texts)
    ]


def by_text(trainings: Iterable[MeasuredTraining], extra: Mapping[str, Any]) -> Sequence[Measured]:
    """The finished trainings on each text; one without a text where nothing is trained."""
    rows_by_text: dict[str, dict[str, dict[int, Measures]]] = {}
    for training, measures in trainings:
        by_seed = rows_by_text.setdefault(training.text, {}).setdefault(training.row, {})
        if state_of(measures) == "finished":
            by_seed[training.trial.seed] = measures
    if not rows_by_text:
        return [Measured({}, "", extra)]
    return [Measured(rows, text, extra) for text, rows in rows_by_text.items()]


def table(experiment: Experiment, m: Measured) -> dict[str, dict[str, dict[str, float | None]]]:
    """By row and column, the mean and interval of what was measured on a text or computed."""
    rows = m.rows or m.extra.get("rows", experiment.published.runs)
    columns = {row: experiment.columns(m, row) for row in rows if m.rows.get(row) or m.extra}
    return {
        row: {name: rounded_interval(values) for name, values in of_row.items() if values}
        for row, of_row in columns.items()
    }


def describe(training: ItemTraining, measures: Measures) -> dict[str, Any]:
    """A cell: row, text, run, settings and seed, and its numbers; curves are in the charts."""
    run = training.trial.run
    return {
        "row": training.row,
        "text": training.text,
        "run": run.name,
        "seed": run.seed,
        "folder": training.trial.folder.name,
        "state": state_of(measures),
        **describe_causality(training),
        "settings": {**trained_with(run), "corpus": [path.name for path in run.corpus]},
        "measures": numbers(measures),
    }


def trained_with(run: TrainConfig) -> dict[str, Any]:
    """The settings of a training apart from its corpus and seed."""
    parts = ("model", "routing", "optimizer", "warmup")
    return {
        **{name: value for name, value in run.to_dict().items() if name in parts},
        "steps": run.steps,
        "batch_size": run.batch_size,
        "length": run.length,
        "precision": run.precision,
    }


def numbers(value: Any) -> Any:
    """The numbers and names of a nested object, without its lists."""
    if isinstance(value, Mapping):
        parts = {key: numbers(part) for key, part in value.items() if not isinstance(part, list)}
        return {key: part for key, part in parts.items() if part != {}}
    return rounded(value) if isinstance(value, float) else value


def read_items(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of every item in a folder, in the order of `all`. InputError for a damaged file."""
    items = {}
    for name in ITEM_ORDER:
        path = folder / name / RESULTS
        if path.exists():
            items[name] = read_object(path, DAMAGED)
    return items


def outdated(item: Mapping[str, Any]) -> str:
    """How an item's trainings differ from those of today's scale of that name; empty if they do not.

    Settings that were added or removed since are not compared, nor is the number of experts routed to by
    label, which follows from the text.
    """
    experiment, scale = EXPERIMENTS[item["item"]], find_scale(item["scale"])
    runs = {**experiment.runs, **experiment.further_runs}
    for cell in item["cells"]:
        name = cell["row"]
        if name not in runs:
            return f"{experiment.item}: {name} is no run of this item today"
        expected = trained_with(scaled_run(runs[name], scale))
        if missing := sorted(expected.keys() - cell["settings"].keys()):
            return f"{experiment.item}: it is not recorded with which {missing[0]} {name} was trained"
        then, today = map(by_dotted_name, (cell["settings"], json.loads(json.dumps(expected))))
        from_text = {"model.num_experts"} if today["routing.scorer"] == "label" else set()
        shared = [key for key in then if key in today and key not in from_text]
        changed = [key for key in shared if then[key] != today[key]]
        if changed:
            old, new = (", ".join(f"{key} {of[key]}" for key in changed[:MOST_NAMED]) for of in (then, today))
            return f"{experiment.item}: trained with {old}, but scale {scale.name} has {new} today ({name})"
    return ""
