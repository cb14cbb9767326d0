"""Downstream tasks of one or several models: values with standard errors, as JSON and as a table."""

import io
import logging
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from math import isclose
from numbers import Real
from pathlib import Path
from statistics import fmean
from typing import Any

from tqdm import tqdm

from loriini.common.errors import InputError
from loriini.common.hardware import autocast_dtype
from loriini.common.progress import Advance, progress, warn
from loriini.data.jobs.processes import environment_variables
from loriini.evaluate.intervals import difference_of_means
from loriini.evaluate.perplexity import check_routing
from loriini.evaluate.runs import remove_routers, without_weights
from loriini.evaluate.settings import TaskSettings
from loriini.evaluate.tasks.loading import Loaded, check_installed, load_tasks, requested
from loriini.model import LoriiniConfig
from loriini.model.generate.routing_inputs import labels_of, refuse_unused_label
from loriini.model.weights.loading import load_config, load_model
from loriini.model.weights.run_record import training_of
from loriini.routing import causality_warning

BOOTSTRAP = 1000
"""Resamples for the standard error of metrics that are not means."""
EXAMPLES_SEED = 1234
PREFERRED = ("acc_norm", "acc", "exact_match", "word_perplexity")
"""The metric that stands for a task that has several."""


def evaluate_tasks(runs: Sequence[Path], settings: TaskSettings) -> list[dict[str, Any]]:
    """Evaluate runs, or Hugging Face folders, on tasks of lm-evaluation-harness, one model after the other.

    Returns for each run `routing`, `router_free` and `label` if set, `seconds` without loading the model, and
    `tasks`: key → metric, value, stderr (or None), n and shots; `metrics`, if the task has several;
    `truncated`, the number of inputs that were cut to the model's context, if any. With several runs, each
    result names its `run`, and those after the first have a `difference` from the first for each task whose
    value is a mean over questions. Before any model is loaded, InputError for tasks, data and runs that
    cannot be evaluated.
    """
    check_installed()
    configs = [load_config(run) for run in runs]
    refuse_unused_label(settings.label, *configs)
    for run, config in zip(runs, configs, strict=True):
        check_run(run, config, settings)
    with _harness_quiet():
        tasks = load_tasks(
            requested(settings.tasks, settings.num_fewshot), settings.tasks_data, settings.limit
        )
        with progress("tasks", len(runs) * len(tasks)) as advance:
            results = [_evaluate_run(run, tasks, settings, len(runs) > 1, advance) for run in runs]
    if len(runs) == 1:
        return results
    _add_differences(results)
    return [{"run": str(run), **result} for run, result in zip(runs, results, strict=True)]


def _add_differences(results: Sequence[dict[str, Any]]) -> None:
    """Replace each task's values by question with its `difference` from the first result."""
    by_question = [
        {key: task.pop("by_question", None) for key, task in result["tasks"].items()} for result in results
    ]
    for result, values in zip(results[1:], by_question[1:], strict=True):
        for key, task in result["tasks"].items():
            if values[key] and by_question[0][key]:
                task["difference"] = difference_of_means(by_question[0][key], values[key], key).to_dict()


def check_run(run: Path, config: LoriiniConfig, settings: TaskSettings) -> None:
    """InputError, before its weights are loaded, for a run that these settings do not fit."""
    try:
        check_routing(config, settings.routing, skip=1)
        model = without_weights(config)
        labels_of(model, settings.label, 1)
        if settings.router_free:
            remove_routers(model, settings.router_free)
    except InputError as error:
        raise InputError(f"{run}: {error}") from error


def _evaluate_run(
    run: Path, tasks: dict[str, Loaded], settings: TaskSettings, by_question: bool, advance: Advance
) -> dict[str, Any]:
    from loriini.evaluate.harness import LoriiniLM

    model, tokenizer = load_model(run, settings.device)
    if settings.router_free:
        remove_routers(model, settings.router_free)
    warning = causality_warning(model.config.design)
    if warning and settings.routing == "training":
        warn(f"{run}: {warning}")
    lm = LoriiniLM(
        model,
        tokenizer=tokenizer,
        batch_size=settings.batch_size,
        routing=settings.routing,
        label=settings.label,
        mixed_precision_dtype=autocast_dtype(training_of(run).evaluated_in, model.device),
    )
    results, started = {}, time.perf_counter()
    for key, task in tasks.items():
        results[key] = evaluate_task(lm, key, task, settings.limit, by_question)
        if cut := results[key].get("truncated"):
            warn(f"{run}: {key}: {cut} inputs exceed the context of {lm.max_length} tokens; cut on the left")
        advance(1, key)
    return {
        "routing": settings.routing,
        **({"router_free": str(settings.router_free)} if settings.router_free else {}),
        **({} if settings.label is None else {"label": settings.label}),
        "seconds": round(time.perf_counter() - started, 3),
        "tasks": results,
    }


def evaluate_task(
    lm: Any, key: str, task: Loaded, limit: int | None = None, by_question: bool = False
) -> dict[str, Any]:
    """The results of one task by one of the harness's models, as `evaluate_tasks` gives them.

    With `by_question`, also the metric of every question, if the task's value is their mean.
    """
    from lm_eval.evaluator import evaluate

    for member in task.tasks["tasks"].values():
        member.set_fewshot_seed(EXAMPLES_SEED)
    if hasattr(lm, "truncated"):
        lm.truncated = 0
    measured = evaluate(lm, task.tasks, limit=limit, bootstrap_iters=BOOTSTRAP, log_samples=by_question)
    results = measured["results"][key]
    metrics = _metrics(results)
    preferred = (shown for name in PREFERRED for shown in metrics if shown.partition(",")[0] == name)
    metric = next(preferred, next(iter(metrics)))
    result = {"metric": metric, **metrics[metric], "n": results["sample_len"], "shots": task.shots}
    if by_question and (values := _of_questions(measured["samples"], metric, result["value"])):
        result["by_question"] = values
    if len(metrics) > 1:
        result["metrics"] = metrics
    if cut := getattr(lm, "truncated", 0):
        result["truncated"] = cut
    return result


def _of_questions(samples: dict[str, Any], metric: str, mean: float) -> list[float]:
    """A metric of every question in the harness's samples; empty if their mean is not `mean`."""
    name, _, filter_of = metric.partition(",")
    kept = (s for of_task in samples.values() for s in of_task if filter_of in ("", s["filter"]))
    values = [sample.get(name) for sample in kept]
    if not values or not all(isinstance(value, Real) for value in values):
        return []
    return values if isclose(fmean(values), mean, rel_tol=1e-9, abs_tol=1e-9) else []


def _metrics(results: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """The harness's results by metric; by `metric,filter` if the metric has several filters."""
    keys = [(name, key) for key in results for name, _, filters in [key.partition(",")] if filters]
    counts = Counter(name for name, _ in keys)
    found = {}
    for name, key in keys:
        if not name.endswith("_stderr"):
            error = results[key.replace(",", "_stderr,", 1)]
            stderr = None if isinstance(error, str) else float(error)
            found[name if counts[name] == 1 else key] = {"value": float(results[key]), "stderr": stderr}
    return found


def table_of(results: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table: a row a task, a column a run."""
    head = ["task", "metric", "shots", "n", *(result.get("run", "value") for result in results)]
    rows = []
    for key, first in results[0]["tasks"].items():
        cells = [_cell(result["tasks"][key]) for result in results]
        rows.append([key, first["metric"], str(first["shots"]), str(first["n"]), *cells])
    return head, rows


def _cell(result: dict[str, Any]) -> str:
    """The value with its standard error and, if there is one, the difference to the first run."""
    error = "" if result["stderr"] is None else f" ± {result['stderr']:.4f}"
    shown = f"{result['value']:.4f}{error}"
    if "difference" not in result:
        return shown
    change, *bounds = result["difference"].values()
    interval = "interval unknown" if None in bounds else " to ".join(f"{bound:+.4f}" for bound in bounds)
    return f"{shown} ({change:+.4f}, {interval})"


@contextmanager
def _harness_quiet() -> Iterator[None]:
    """Hide what the harness prints, its progress bars, and all but errors of its log."""
    logger, init = logging.getLogger("lm_eval"), tqdm.__init__
    level = logger.level

    def hidden(self: Any, *arguments: Any, **settings: Any) -> None:
        init(self, *arguments, **{**settings, "disable": True})

    logger.setLevel(logging.ERROR)  # its warnings are about settings made here
    tqdm.__init__ = hidden
    try:
        one_process = environment_variables({"DISABLE_MULTIPROC": "1"})
        with one_process, redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="sklearn")  # F1 of resamples without a positive answer
            yield
    finally:
        logger.setLevel(level)
        tqdm.__init__ = init
