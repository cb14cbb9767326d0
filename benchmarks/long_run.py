"""A dense model and a Lory mixture of the same active size: their curves over some thousand steps.

python benchmarks/long_run.py --corpus CORPUS --heldout PATH… --out DIR --results JSON

Three seeds; the same command resumes an interrupted run.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from loriini.atomic import write_json
from loriini.compare.cells import Cell
from loriini.compare.running import place_cells, train_trials
from loriini.hardware import describe_machine
from loriini.recipes.small import quickstart_run
from loriini.train.measures import EvaluateConfig
from loriini.train.records.metrics import METRICS, read_metrics
from loriini.train.run import Run

MODELS = ("dense", "lory")
SIZE = "small"
"""Of the quickstart's sizes."""
WINDOW = 25
"""Steps whose mean is one point of the training curve."""


def runs(corpus: Path, heldout: list[Path], steps: int, seed: int) -> dict[str, Run]:
    """Both runs of a seed, measured on held-out text every tenth of the way.

    Both skip the mixture's segment 1, so that they are scored on the same tokens.
    """
    both = {name: quickstart_run(name, SIZE, steps, seed) for name in MODELS}
    measured = EvaluateConfig(
        heldout=tuple(map(str, heldout)),
        every=max(1, steps // 10),
        instances=24,
        skip=both["lory"].routing.segment_length,
    )
    return {name: replace(run, corpus=(corpus,), evaluate=measured) for name, run in both.items()}


def result(run: Run, out: Path) -> dict[str, Any]:
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
    """Train both models of every seed and write their curves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True, help="of instances of 512 tokens")
    parser.add_argument("--heldout", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    a = parser.parse_args()
    corpus, heldout = a.corpus.resolve(), [path.resolve() for path in a.heldout]
    cells = [
        Cell(name, run)
        for seed in range(a.seeds)
        for name, run in runs(corpus, heldout, a.steps, seed).items()
    ]
    trials = place_cells(cells, a.out)
    if failures := train_trials(trials, a.jobs):
        raise SystemExit(f"{len(failures)} runs failed: {failures}")
    portable = {"corpus": [corpus.name], "evaluate": {"heldout": [path.name for path in heldout]}}
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe_machine(),
        "runs": {cell.variant: {**cell.run.to_dict(), **portable} for cell in cells if cell.seed == 0},
        "window": WINDOW,
        "results": [result(trial.cell.run, trial.folder) for trial in trials],
    }
    a.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(a.results, results)


if __name__ == "__main__":
    main()
