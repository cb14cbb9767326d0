"""A dense model and a Lory mixture of the same active size: their curves over some thousand steps.

python benchmarks/long_run.py --corpus CORPUS --heldout PATH… --out DIR --results JSON

An interrupted one goes on where it stopped.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from loriini.hardware import describe_machine
from loriini.jobs.artifact import write_json
from loriini.launch import train_run
from loriini.recipes.small import quickstart_run
from loriini.train.measures import EvaluateConfig
from loriini.train.metrics import METRICS, read_metrics
from loriini.train.run import Run

MODELS = ("dense", "lory")
KEPT = ("step", "perplexity", "mean_perplexity")
WINDOW = 25
"""Steps whose mean is one point of the training curve."""


def runs(corpus: Path, heldout: list[Path], steps: int) -> dict[str, Run]:
    """Both runs: of the quickstart's medium size, measured on held-out text every twentieth of the way."""
    measured = EvaluateConfig(heldout=tuple(heldout), every=max(1, steps // 20), instances=24)
    return {
        name: replace(quickstart_run(name, "medium", steps, seed=0), corpus=(corpus,), evaluate=measured)
        for name in MODELS
    }


def result(run: Run, out: Path) -> dict[str, Any]:
    """The curves of a finished run."""
    metrics = read_metrics(out / METRICS)
    measured = [json.loads(line) for line in (out / "evaluation.jsonl").read_text().splitlines()]
    losses = [m["loss"] for m in metrics]
    return {
        "name": run.name,
        "tokens": metrics[-1]["tokens"],
        "minutes": sum(run.batch_size * run.length / m["tokens_per_second"] for m in metrics) / 60,
        "losses": [round(mean(losses[i : i + WINDOW]), 4) for i in range(0, len(losses), WINDOW)],
        "evaluation": [
            {key: row[key] for key in ("step", "perplexity", "mean_perplexity")} for row in measured
        ],
    }


def main() -> None:
    """Train both at once, a process and a thread each, and write their curves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True, help="of instances of 512 tokens")
    parser.add_argument("--heldout", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--only", choices=MODELS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    both = runs(a.corpus.resolve(), [path.resolve() for path in a.heldout], a.steps)
    if a.only:
        torch.set_num_threads(1)
        train_run(both[a.only], a.out / a.only)
        return
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, *sys.argv, "--only", name], env=environment) for name in MODELS
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        sys.exit("a run did not finish; the same command goes on")
    portable = {"corpus": [a.corpus.name], "evaluate": {"heldout": [path.name for path in a.heldout]}}
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {**describe_machine(), "threads": 1},
        "runs": {name: {**run.to_dict(), **portable} for name, run in both.items()},
        "window": WINDOW,
        "results": [result(run, a.out / name) for name, run in both.items()],
    }
    a.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(a.results, results)


if __name__ == "__main__":
    main()
