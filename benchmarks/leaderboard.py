"""Causal designs with tuned learning rates, on the same text and seeds.

python benchmarks/leaderboard.py --text PATH… --out WORK --results benchmarks/results/leaderboard.json

Every design, by default all causal ones, is trained with each rate and some seeds, and with further rates
where the best is at the edge; the one with the lowest training loss is trained with other seeds, by which
designs are compared. Held-out text is used only then. No design has a dense warm-up there, which many could
not have. Those that can are trained with it too, at rates of their own, and at these with a single dense
step, after which experts are copies as well: what a warm-up changes by its initial weights alone.
`figures.py` makes docs/leaderboard.md of the results.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment import Experiment
from loriini.common.grouping import grouped
from loriini.compare.cells import Cell, make_cells
from loriini.compare.job import measure_trials
from loriini.compare.report import write_comparison
from loriini.compare.running import Trial
from loriini.data.prepare.prepare import open_corpus
from loriini.evaluate.intervals import OVERALL
from loriini.evaluate.runs import EvaluationSettings
from loriini.recipes import quickstart_run
from loriini.routing import DESIGNS
from narrowed import is_soft, narrow
from ranking import is_told_labels, of_equal_size
from tuning import (
    RATE,
    CellsOf,
    Rates,
    Tried,
    add_options,
    for_few_steps,
    reported_seeds,
    sweep,
    tuned_results,
    with_seeds,
)

CAUSAL = tuple(name for name, design in DESIGNS.items() if design.causality != "none")
WARMUP = "warmup.dense_share"
RATES = ("2e-3", "4e-3", "8e-3")
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
    parser = Experiment.parser(steps=500)
    parser.add_argument("--designs", nargs="+", default=CAUSAL, choices=CAUSAL, metavar="DESIGN")
    to_warm = "those to train with a dense warm-up too, where they admit one"
    parser.add_argument(
        "--warm-designs", nargs="*", default=CAUSAL, choices=CAUSAL, metavar="DESIGN", help=to_warm
    )
    add_options(parser, RATES, "learning rates, the same for all designs")
    Rates.add_option(parser)
    return parser.parse_args()


def tuned_cells(
    design: str, rates: Sequence[str], corpus: Path, steps: int, batch_size: int, dense_share: float = 0.0
) -> list[Cell]:
    """A design with every rate and seed 0; label routing has an expert for each domain.

    Its dense warm-up is `dense_share` of the steps if it admits one, else none.
    """
    base = quickstart_run("lory", "small", steps, 0)
    warmup = replace(base.warmup, dense_share=dense_share)
    base = replace(base, corpus=(corpus,), batch_size=batch_size, warmup=warmup)
    labels = len(open_corpus(corpus).instances.label_names)
    overrides = [f"--model.num_experts={labels}"] if design == "label" else []
    cells = make_cells([design], base, overrides, {RATE: list(rates)}, seeds=1)
    return [for_few_steps(cell) for cell in cells]


def warmed_cells(
    design: str, rates: Sequence[str], corpus: Path, steps: int, batch_size: int, dense_steps: int
) -> list[Cell]:
    """A design with every rate, seed 0 and a dense warm-up of `dense_steps`; none if it admits none."""
    share = dense_steps / steps
    return [
        replace(
            cell,
            variant=f"{cell.variant} dense_steps={dense_steps}",
            settings={**cell.settings, WARMUP: str(share)},
        )
        for cell in tuned_cells(design, rates, corpus, steps, batch_size, share)
        if cell.run.copy_step
    ]


def best_cells(cells_of: CellsOf, tried: Tried) -> list[Cell]:
    """A cell for each design, with its best rate and seed 0; none where all diverged."""
    best = ((design, one["rate"]) for design, one in tried.items() if "rate" in one)
    return [
        replace(cell, settings={**cell.settings, RATE: rate})
        for design, rate in best
        for cell in cells_of(design, [rate])
    ]


def with_first(trials: Sequence[Trial], design: str) -> list[Trial]:
    """The trials, those of one design first: the others are compared with it."""
    return sorted(trials, key=lambda trial: trial.cell.run.name != design)


def leader(variants: Sequence[Mapping[str, Any]]) -> str:
    """The design of lowest held-out perplexity among those of equal active size that see tokens alone."""
    equal = [v for v in of_equal_size(variants) if not is_told_labels(v["design"])]
    scored = [v for v in equal if "perplexity" in v]
    name: str = min(scored, key=lambda v: v["perplexity"][OVERALL]["mean"])["design"]
    return name


def by_design(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each design."""
    return grouped(trials, lambda trial: trial.cell.run.name)


def against(
    trials: Sequence[Trial], leader: str, evaluation: EvaluationSettings, cache: Path
) -> dict[str, Any]:
    """Every design's difference of perplexity to a leader."""
    variants = measure_trials(with_first(trials, leader), evaluation, {}, cache)["variants"]
    return {v["design"]: v["difference"][OVERALL] for v in variants if "difference" in v}


def warmup_results(
    trials: Sequence[Trial], warm: Sequence[Trial], evaluation: EvaluationSettings, cache: Path
) -> dict[str, Any]:
    """What a dense warm-up changes: of each design in `warm` its dense steps, rate and perplexity.

    The `difference` is to the same design without it, `to_first` to the first design; `trials` are those
    without.
    """
    cold, found = by_design(trials), {}
    first = next(iter(cold.values()))
    for design, own in by_design(warm).items():
        cell = own[0].cell
        found[design] = {"dense_steps": cell.run.copy_step, "rate": cell.settings[RATE]}
        for name, others in (("difference", cold[design]), ("to_first", first)):
            variant = measure_trials([*others, *own], evaluation, {}, cache)["variants"][1]
            if "difference" in variant:
                found[design] |= {
                    "perplexity": variant["perplexity"][OVERALL],
                    name: variant["difference"][OVERALL],
                }
    return found


def without_seconds(found: Mapping[str, Any]) -> dict[str, Any]:
    """The results but for those at equal seconds: trainings share the machine with one another."""
    variants = [
        {**v, "equal": {axis: one for axis, one in v["equal"].items() if axis != "seconds"}}
        if "equal" in v
        else v
        for v in found["variants"]
    ]
    return {**found, "variants": variants}


def main() -> None:
    """Sweep, train the best with all seeds, evaluate, and write results and report."""
    arguments = parse()
    experiment, rates = Experiment.of(arguments), Rates.of(arguments)
    corpus = experiment.prepare()["similar"]
    evaluation = experiment.evaluation(arguments.instances)
    cache, seeds = experiment.out / "evaluations", reported_seeds(experiment.seeds)
    sizes = {"corpus": corpus, "steps": experiment.steps, "batch_size": arguments.batch_size}

    def trained(cells_of: CellsOf, tried: Tried) -> list[Trial]:
        return experiment.train(with_seeds(best_cells(cells_of, tried), seeds))

    cold_cells = partial(tuned_cells, **sizes)
    tried = sweep(cold_cells, "design", arguments.designs, rates, experiment, cache)
    trials = trained(cold_cells, tried)
    found = measure_trials(trials, evaluation, {}, cache)
    print(write_comparison({**found, **experiment.about}, experiment.out))
    best_design = leader(found["variants"])
    share = quickstart_run("lory", "small").warmup.dense_share
    warm_cells = partial(warmed_cells, **sizes, dense_steps=max(1, round(share * experiment.steps)))
    to_warm = [name for name in arguments.designs if name in arguments.warm_designs]
    admitted = [design for design in to_warm if warm_cells(design, rates.values[:1])]
    tried_warm = sweep(warm_cells, "design", admitted, rates, experiment, cache)
    warmed = trained(warm_cells, tried_warm)
    copied = trained(partial(warmed_cells, **sizes, dense_steps=1), tried_warm)
    results = {
        "experiment": "leaderboard",
        **tuned_results(experiment, without_seconds(found), KEPT, rates, tried, trials[0].cell.run),
        "causal": list(CAUSAL),
        "leader": {"design": best_design, "differences": against(trials, best_design, evaluation, cache)},
        "narrowed": {
            design: narrow(own, evaluation) for design, own in by_design(filter(is_soft, trials)).items()
        },
        "tried_warm": tried_warm,
        "warmed": warmup_results(trials, warmed, evaluation, cache),
        "copied": warmup_results(trials, copied, evaluation, cache),
    }
    experiment.write(results)


if __name__ == "__main__":
    main()
