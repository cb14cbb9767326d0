"""Causal designs with tuned learning rates, on the same text and seeds.

python benchmarks/leaderboard.py --text PATH… --out WORK --results benchmarks/results/leaderboard.json

No design has a dense warm-up, which many cannot have. Those that can are trained with one as well, at a rate
of its own, as a variant more.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from experiment import Experiment, with_rate
from loriini.compare.grid import make_trainings
from loriini.compare.trainings import Training
from loriini.data.prepare.prepare import open_corpus
from loriini.recipes import quickstart_run
from loriini.routing import DESIGNS
from loriini.train.upcycle import WarmupConfig

CAUSAL = tuple(name for name, design in DESIGNS.items() if design.causality != "none")
WARM = " with dense warm-up"
RATES = ("2e-3", "4e-3", "8e-3")


def cell_of(name: str, rate: str, corpus: Path, experiment: Experiment) -> Training:
    """A design's cell, whose name may end in WARM; label routing has an expert for each domain."""
    base = quickstart_run("lory", "small", experiment.steps, 0)
    warmup = WarmupConfig() if name.endswith(WARM) else WarmupConfig(0.0)
    base = replace(base, corpus=(corpus,), batch_size=experiment.batch_size, warmup=warmup)
    design = name.removesuffix(WARM)
    labels = len(open_corpus(corpus).instances.label_names)
    overrides = [f"--model.num_experts={labels}"] if design == "label" else []
    (cell,) = make_trainings([design], base, overrides, {}, seeds=1)
    return with_rate(replace(cell, variant=name), rate)


def main() -> None:
    """Choose every design's rate, train it with other seeds, evaluate, and write results and report."""
    parser = Experiment.parser(steps=500, rates=RATES)
    parser.add_argument("--designs", nargs="+", default=CAUSAL, choices=CAUSAL, metavar="DESIGN")
    arguments = parser.parse_args()
    experiment = Experiment.of(arguments)
    of = partial(cell_of, corpus=experiment.prepare(), experiment=experiment)
    warm = [f"{name}{WARM}" for name in arguments.designs]
    admitted = [name for name in warm if of(name, RATES[0]).run.copy_step]
    tried = experiment.tune(of, [*arguments.designs, *admitted])
    experiment.write(experiment.train_best(of, tried), tried, experiment="leaderboard")


if __name__ == "__main__":
    main()
