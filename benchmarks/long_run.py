"""A dense model and a Lory mixture of the same active size: their curves over some thousand steps.

Beside them the mixture with gates fixed at 1/E, which tells what its copies change without routing.

python benchmarks/long_run.py --corpus CORPUS --heldout PATH… --out DIR --results JSON

The same command resumes an interrupted run.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine
from loriini.compare.cells import Cell
from loriini.compare.job import measure_trials
from loriini.compare.running import place_cells, refuse_failures, threads_of, train_trials
from loriini.evaluate.runs import EvaluationSettings
from loriini.recipes.small import quickstart_run
from loriini.train.config import TrainConfig
from loriini.train.measures import EvaluateConfig
from loriini.train.records.metrics import METRICS, read_metrics

MODELS = ("dense", "lory")
EQUAL_GATES = "lory-equal-gates"
"""Lory with gates fixed at 1/E: a dense model of E copies, which is clipped as the mixture is."""
SIZE = "small"
"""Of the quickstart's sizes."""
FIRST_SEED = 3
"""The quickstart's defaults were chosen with the seeds before it."""
WINDOW = 25
"""Steps whose mean is one point of the training curve."""
ALONG_THE_WAY = 24
"""Instances of each domain that are scored during training."""
KEPT = ("design", "parameters", "finished_seeds", "perplexity", "difference")
"""Of what is measured at the end."""


def runs(corpus: Path, heldout: list[Path], steps: int, seed: int) -> dict[str, TrainConfig]:
    """The runs of a seed, measured on held-out text every tenth of the way.

    All skip the mixture's segment 1, so that they are scored on the same tokens.
    """
    found = {name: quickstart_run(name, SIZE, steps, seed) for name in MODELS}
    lory = found["lory"]
    found[EQUAL_GATES] = replace(lory, name=EQUAL_GATES, routing=replace(lory.routing, gates="uniform"))
    measured = EvaluateConfig(
        heldout=tuple(map(str, heldout)),
        every=max(1, steps // 10),
        instances=ALONG_THE_WAY,
        skip=lory.routing.segment_length,
    )
    return {name: replace(run, corpus=(corpus,), evaluate=measured) for name, run in found.items()}


def result(run: TrainConfig, out: Path) -> dict[str, Any]:
    """The curves of a finished run."""
    metrics = read_metrics(out / METRICS)
    measured = [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]
    losses = [m["loss"] for m in metrics]
    return {
        "name": run.name,
        "seed": run.seed,
        "skip": run.evaluate.skip,
        "tokens": metrics[-1]["tokens"],
        "losses": [round(mean(losses[i : i + WINDOW]), 4) for i in range(0, len(losses), WINDOW)],
        "evaluation": [
            {key: row[key] for key in ("step", "perplexity", "mean_perplexity")} for row in measured
        ],
    }


def main() -> None:
    """Train the models of every seed and write their curves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True, help="of instances of 512 tokens")
    parser.add_argument("--heldout", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--instances", type=int, default=128, help="of each domain, scored at the end")
    parser.add_argument("--jobs", type=int, default=1)
    a = parser.parse_args()
    corpus, heldout = a.corpus.resolve(), [path.resolve() for path in a.heldout]
    cells = [
        Cell(name, run)
        for seed in range(FIRST_SEED, FIRST_SEED + a.seeds)
        for name, run in runs(corpus, heldout, a.steps, seed).items()
    ]
    trials = place_cells(cells, a.out / "runs")
    refuse_failures(trials, train_trials(trials, a.jobs))
    scored = EvaluationSettings(
        tuple(map(str, heldout)), skip=cells[0].run.evaluate.skip, instances=a.instances
    )
    found = measure_trials(trials, scored, {}, a.out / "evaluations")
    portable = {"corpus": [corpus.name], "evaluate": {"heldout": [path.name for path in heldout]}}
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {**describe_machine(), "jobs": a.jobs, "threads": threads_of(a.jobs)},
        "runs": {
            cell.variant: {**cell.run.to_dict(), **portable} for cell in cells if cell.seed == FIRST_SEED
        },
        "window": WINDOW,
        "results": [result(trial.cell.run, trial.folder) for trial in trials],
        "heldout": found["heldout"],
        "variants": {v["name"]: {key: v[key] for key in KEPT if key in v} for v in found["variants"]},
    }
    a.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(a.results, results)


if __name__ == "__main__":
    main()
