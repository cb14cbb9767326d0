"""Causal designs with tuned learning rates, on the same text and seeds.

python benchmarks/leaderboard.py --text PATH… --out WORK --results benchmarks/results/leaderboard.json

Every design, by default all causal ones, is trained once with each rate; the one with the lowest training
loss is trained with the other seeds. Held-out text is used only then. `figures.py` makes docs/leaderboard.md
of the results.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import Experiment, train
from loriini.compare.cells import Cell, make_cells
from loriini.compare.job import measure_trials
from loriini.compare.report import write_comparison
from loriini.compare.running import Trial, place_cells
from loriini.corpus.prepare import open_corpus
from loriini.evaluate.intervals import OVERALL
from loriini.evaluate.runs import EvaluationSettings
from loriini.recipes import quickstart_run
from loriini.routing import DESIGNS
from ranking import contenders
from tuning import RATE, add_options, tried_rates, tuned_results

CAUSAL = tuple(name for name, design in DESIGNS.items() if design.causality != "none")
RATES = ("2e-3", "4e-3", "8e-3")
BUDGETS = ("flops", "seconds")
"""At which designs are compared by training loss; at equal tokens it is by perplexity."""
KEPT = (
    "design",
    "settings",
    "edge",
    "causality",
    "training_causality",
    "parameters",
    "flops_per_token",
    "finished_seeds",
    "diverged_seeds",
    "failed_seeds",
    "perplexity",
    "bits_per_byte",
    "training_loss",
    "equal",
    "difference",
    "paired_seeds",
)
"""Of a variant's results."""


def parse() -> argparse.Namespace:
    parser = Experiment.parser(steps=300)
    parser.add_argument("--designs", nargs="+", default=CAUSAL, choices=CAUSAL, metavar="DESIGN")
    add_options(parser, RATES, "learning rates, the same for all designs")
    return parser.parse_args()


def sweep_cells(
    designs: Sequence[str], rates: Sequence[str], corpus: Path, steps: int, batch_size: int
) -> list[Cell]:
    """Every design with every rate and the first seed; label routing has an expert for each domain."""
    base = replace(quickstart_run("lory", "small", steps, 0), corpus=(corpus,), batch_size=batch_size)
    labels = len(open_corpus(corpus).instances.label_names)
    grid = {RATE: list(rates)}
    others = [name for name in designs if name != "label"]
    cells = make_cells(others, base, [], grid, seeds=1) if others else []
    if "label" in designs:
        cells += make_cells(["label"], base, [f"--model.num_experts={labels}"], grid, seeds=1)
    return cells


def best_rates(trials: Sequence[Trial], cache: Path) -> tuple[list[Cell], dict[str, Any]]:
    """The cell of each design's best rate, and what was tried, by training loss alone."""
    variants = measure_trials(trials, None, {}, cache)["variants"]
    chosen = {v["name"] for v in variants if v["chosen"]}
    cells = (trial.cell for trial in trials)
    best = [replace(c, variant=c.run.name) for c in cells if c.variant in chosen]
    return best, tried_rates(variants, "design")


def with_first(trials: Sequence[Trial], design: str) -> list[Trial]:
    """The trials, those of one design first: the others are compared with it."""
    return sorted(trials, key=lambda trial: trial.cell.variant != design)


def leaders(variants: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The best design by held-out perplexity at equal tokens, and by training loss at FLOPs and seconds."""
    scored = contenders(variants, "perplexity")
    found = {"perplexity": min(scored, key=lambda v: v["perplexity"][OVERALL]["mean"])["design"]}
    return found | {
        axis: min(contenders(variants, axis), key=lambda v: v["equal"][axis]["loss"]["mean"])["design"]
        for axis in BUDGETS
    }


def against(
    trials: Sequence[Trial], leader: str, measure: str, evaluation: EvaluationSettings, cache: Path
) -> dict[str, Any]:
    """Every design's difference to a leader."""
    variants = measure_trials(with_first(trials, leader), evaluation, {}, cache)["variants"]
    if measure == "perplexity":
        return {v["design"]: v["difference"][OVERALL] for v in variants if "difference" in v}
    own = {v["design"]: v["equal"][measure] for v in variants if "equal" in v}
    return {name: equal["difference"] for name, equal in own.items() if "difference" in equal}


def main() -> None:
    """Sweep, train the best with all seeds, evaluate, and write results and report."""
    arguments = parse()
    experiment = Experiment.of(arguments)
    corpus = experiment.prepare()["similar"]
    cache, runs = experiment.out / "evaluations", experiment.out / "runs"
    sizes = (experiment.steps, arguments.batch_size)
    swept = place_cells(sweep_cells(arguments.designs, arguments.rates, corpus, *sizes), runs)
    train(swept, experiment.jobs)
    best, tried = best_rates(swept, cache)
    seeds = range(experiment.seeds)
    cells = [replace(cell, run=replace(cell.run, seed=seed)) for seed in seeds for cell in best]
    trials = place_cells(cells, runs)
    train(trials, experiment.jobs)
    evaluation = experiment.evaluation(arguments.instances)
    found = measure_trials(trials, evaluation, {}, cache)
    print(write_comparison({**found, **experiment.about}, experiment.out))
    results = {
        "experiment": "leaderboard",
        **tuned_results(experiment, found, KEPT, arguments.rates, tried, cells[0].run),
        "causal": list(CAUSAL),
        "leaders": {
            measure: {"design": name, "differences": against(trials, name, measure, evaluation, cache)}
            for measure, name in leaders(found["variants"]).items()
        },
    }
    experiment.write(results)


if __name__ == "__main__":
    main()
