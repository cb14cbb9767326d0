"""Measurements of a training: of its steps, from `metrics.jsonl`, and its held-out perplexity."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, TypeGuard

import numpy as np

from loriini.common.errors import InputError
from loriini.common.folders import RUN, model_folder
from loriini.common.json_file import read_or_make
from loriini.compare.trainings import Training
from loriini.data.jobs.artifact import digest
from loriini.data.jobs.lock import folder_lock
from loriini.evaluate.heldout import HeldOut, heldout_digest
from loriini.evaluate.perplexity import EVALUATION_VERSION
from loriini.evaluate.runs import evaluate_on
from loriini.evaluate.settings import EvaluationSettings
from loriini.reporting.curves import (
    Floats,
    Metrics,
    column,
    routed_steps,
    training_seconds,
    utilisation,
    with_load_entropy,
)
from loriini.train.config import RecordedCorpus, from_json, read_run
from loriini.train.records.metrics import METRICS, read_records

Row = Mapping[str, Any]
"""A training's or a variant's object in the results, or a part of it; docs/compare.md has the keys."""
Rows = Sequence[Row]
CURVE_POINTS = 100
LAST_SHARE = 0.1
"""Share of the steps, at the end of training, over which measures are averaged."""
READ = ("tokens", "loss", "experts", "skipped", "tokens_per_second")
"""Fields of `metrics.jsonl` that a comparison reads."""


def training_measures(training: Training) -> dict[str, Any]:
    """A training's state, sizes, cost, loss, use of experts, and learning curve.

    - `training_loss`: mean of the last tenth of the steps; None if none of them was finite.
    - `flops`: `LoriiniConfig.flops_per_token` of the model that each step trained, dense warm-up included.
    - `seconds`: of training steps alone; evaluations, checkpoints and pauses are not counted.
    - `curve`: means of `loss` over at most CURVE_POINTS windows of steps; `tokens`, `flops` and `seconds` at
      the end of each.

    InputError for a run without metrics, or without a field that is compared.
    """
    metrics = read_records(training.folder / METRICS, *READ)
    if not metrics:
        raise InputError(f"{training.folder}: has no {METRICS}, so nothing to compare; train it first")
    run, written = read_run(training.folder / RUN)
    corpus = from_json(RecordedCorpus, written, training.folder / RUN)
    configs = {n: run.config(corpus.vocab_size, num_experts=n) for n in {m["experts"] for m in metrics}}
    flops = {n: config.flops_per_token(run.length) for n, config in configs.items()}
    tokens = column(metrics, "tokens")
    spent = {
        "tokens": tokens,
        "flops": np.cumsum(np.diff(tokens, prepend=0) * [flops[m["experts"]] for m in metrics]),
        "seconds": np.cumsum(training_seconds(metrics)),
    }
    trained = run.config(corpus.vocab_size)
    total, active = trained.parameters()
    return {
        "state": training.state,
        **asdict(corpus),
        "parameters": {"total": total, "active": active},
        "flops_per_token": trained.flops_per_token(run.length),
        "steps": len(metrics),
        **{axis: float(values[-1]) for axis, values in spent.items()},
        "tokens_per_second": float(np.median(column(metrics[len(metrics) // 2 :], "tokens_per_second"))),
        "training_loss": mean_or_none(m["loss"] for m in last_part(metrics)),
        "skipped_steps": sum(m["skipped"] for m in metrics),
        "curve": learning_curve(column(metrics, "loss"), spent),
        **expert_use_measures(metrics, trained.design.soft),
    }


def last_part(metrics: Metrics) -> Metrics:
    """The last tenth of the steps, at least one."""
    return metrics[-max(1, round(LAST_SHARE * len(metrics))) :]


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are finite numbers; None if there is none."""
    finite = [value for value in values if is_number(value)]
    return fmean(finite) if finite else None


def learning_curve(loss: Floats, spent: Mapping[str, Floats]) -> dict[str, list[float | None]]:
    """Means of the loss over windows of steps, and what was spent by the end of each window."""
    windows = np.array_split(np.arange(len(loss)), min(CURVE_POINTS, len(loss)))
    means = [mean_or_none(loss[window].tolist()) for window in windows]
    ends = [window[-1] for window in windows]
    return {"loss": means, **{axis: values[ends].tolist() for axis, values in spent.items()}}


def expert_use_measures(metrics: Metrics, soft: bool) -> dict[str, Any]:
    """Means over layers and the last tenth of the mixture's steps; empty for a dense model.

    - `experts_in_use`: exp of the load's entropy (E if even), over the loads recorded in those steps; if
      there are none, the last load recorded before them, or each step's own `load_entropy`.
    - `experts_per_decision`: exp of the gates' entropy: over how many experts a decision spreads.
    - `experts_by_score`: exp of the confidence entropy, the entropy of the softmax of the scores.
    - `utilisation`: share of experts active at least once in ten steps (Lory appendix G.1); left out for a
      `soft` design with two experts, whose gates never exceed twice the even share.
    """
    routed = routed_steps(metrics)
    if not routed:
        return {}
    last, windows = last_part(routed), utilisation(routed)[1]
    recorded = with_load_entropy(last) or with_load_entropy(routed)[-1:] or last
    loads_SL, gates_SL = column(recorded, "load_entropy"), column(last, "gate_entropy")
    count, experts = max(1, round(LAST_SHARE * len(windows))), routed[-1]["experts"]
    active = {} if soft and experts == 2 else {"utilisation": float(windows[-count:].mean())}
    return {
        "experts": experts,
        **active,
        "experts_in_use": _effective_number(loads_SL),
        "experts_per_decision": _effective_number(gates_SL),
        "experts_by_score": _effective_number(column(last, "confidence_entropy")),
        "gate_entropy": np.round(gates_SL.mean(0), 4).tolist(),
        "load_entropy": np.round(loads_SL.mean(0), 4).tolist(),
    }


def _effective_number(entropies_SL: Floats) -> float:
    """exp of the entropy, the number of evenly used experts that has it; mean over steps and layers."""
    return float(np.exp(entropies_SL).mean())


def evaluate_trainings(
    trainings: Sequence[Training], heldout: Mapping[str, HeldOut], settings: EvaluationSettings, cache: Path
) -> dict[Path, dict[str, Any]]:
    """The evaluation of each run, which must be finished, with `instance_losses`, by the run's folder.

    Evaluations are kept in the folder `cache`, and reused for the same model, tokens and settings.
    """
    text = [heldout_digest(heldout), {domain: h.bytes_per_token for domain, h in heldout.items()}]
    how = [text, settings.skip, settings.routing, settings.contexts]
    evaluations = {}
    for training in trainings:
        folder, shown = training.folder, f"evaluate {training.name}"
        path = cache / f"{folder.name}-{evaluation_key(folder, *how)}.json"
        with folder_lock(cache, wait=True):  # another command may evaluate the same trainings
            evaluations[folder] = read_or_make(path, evaluate_on, folder, heldout, settings, shown)
    return evaluations


def evaluation_key(folder: Path, *how: Any) -> str:
    """A hash of `how` a run's model is measured, and of its weight files' names, sizes and times."""
    weights = model_folder(folder).glob("*.safetensors")
    state = sorted([file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in weights)
    return digest([EVALUATION_VERSION, *how, state])[:8]


def is_number(value: float | None) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return value is not None and math.isfinite(value)
