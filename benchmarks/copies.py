"""What a mixture of copies of one FFN gains with routing and without, at several learning rates.

python benchmarks/copies.py --text PATH… --out WORK --results benchmarks/results/copies.json

At each rate three models, all in the leaderboard's size: dense; Lory after a single dense step, whose experts
are copies; and the same with gates fixed at 1/E. The last is a dense model of E copies. It differs from the
dense one in how much it is clipped, as the gradients of copies have a norm √E times smaller, and in nothing
else. `figures.py` makes a part of docs/leaderboard.md of the results.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import Experiment, portable
from leaderboard import tuned_cells
from loriini.compare.cells import Cell
from loriini.compare.job import measure_trials
from loriini.evaluate.runs import EvaluationSettings
from tuning import add_options, reported_seeds, with_seeds

KEPT = ("perplexity", "training_loss", "difference", "finished_seeds")
"""Of a model's results."""


def cells_at(rate: str, corpus: Path, steps: int, batch_size: int) -> list[Cell]:
    """The three models with one rate and one seed."""
    (dense,), (routed,) = (
        tuned_cells(design, [rate], corpus, steps, batch_size, dense_share=1 / steps)
        for design in ("dense", "lory")
    )
    fixed = replace(routed.run, routing=replace(routed.run.routing, gates="uniform"))
    runs = {"dense": dense.run, "lory": routed.run, "lory, gates of 1/E": fixed}
    return [Cell(name, run, {"model": name}) for name, run in runs.items()]


def results_at(
    cells: Sequence[Cell], seeds: range, experiment: Experiment, evaluation: EvaluationSettings
) -> dict[str, Any]:
    """By model what was measured; the `difference` is from the dense model with the same rate and seeds."""
    trials = experiment.train(with_seeds(cells, seeds))
    found = measure_trials(trials, evaluation, {}, experiment.out / "evaluations")
    return {v["name"]: {key: v[key] for key in KEPT if key in v} for v in found["variants"]}


def main() -> None:
    """Train all models with every rate and seed, evaluate them, and write the results."""
    parser = Experiment.parser(steps=500)
    add_options(parser, ("4e-3", "8e-3"), "learning rates, the same for all models")
    arguments: argparse.Namespace = parser.parse_args()
    experiment = Experiment.of(arguments)
    corpus = experiment.prepare()["similar"]
    evaluation = experiment.evaluation(arguments.instances)
    cells = {rate: cells_at(rate, corpus, experiment.steps, arguments.batch_size) for rate in arguments.rates}
    seeds = reported_seeds(experiment.seeds)
    results = {rate: results_at(each, seeds, experiment, evaluation) for rate, each in cells.items()}
    first = next(iter(cells.values()))
    experiment.write(
        {
            "experiment": "copies",
            **experiment.about,
            "seeds": experiment.seeds,
            "runs": {cell.variant: portable(cell.run) for cell in first},
            "skipped_tokens": evaluation.skip,
            "instances": evaluation.instances,
            "rates": results,
        }
    )


if __name__ == "__main__":
    main()
