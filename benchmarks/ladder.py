"""Dense, Lory and Mixtral at four widths on the same text: how a mixture's gain changes with compute.

python benchmarks/ladder.py --text PATH… --out WORK --results benchmarks/results/ladder.json

At each width the dense model is trained with each learning rate and some seeds, and with further rates where
the best is at the edge; all designs of this width are trained with the one of its lowest training loss and
other seeds, so that only the baseline is tuned. All read the same tokens.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiment import Experiment
from loriini.compare.cells import Cell, make_cells
from loriini.compare.job import measure_trials
from loriini.compare.report import write_comparison
from loriini.recipes import quickstart_run
from loriini.recipes.redesign import scaled_shape
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig
from tuning import FIRST_REPORTED, RATE, Rates, add_options, for_few_steps, sweep, tuned_results

BASELINE = "dense"
OTHERS = ("lory", "mixtral")
RATES = ("1e-3", "2e-3", "4e-3", "8e-3")
WIDTH, HEAD_WIDTH = 256, 32
KEPT = (
    "name",
    "design",
    "width",
    "parameters",
    "finished_seeds",
    "diverged_seeds",
    "training_loss",
    "perplexity",
    "difference",
    "causality",
    "training_causality",
)
"""Of a variant's results."""


def parse() -> argparse.Namespace:
    parser = Experiment.parser(steps=960)
    of_designs = "beside dense"
    parser.add_argument(
        "--designs", nargs="+", default=OTHERS, choices=DESIGNS, metavar="DESIGN", help=of_designs
    )
    add_options(parser, RATES, "learning rates, two or more")
    Rates.add_option(parser)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the largest size")
    parser.add_argument("--sizes", type=int, default=4)
    return parser.parse_args()


def base_run(corpus: Path, width: int, steps: int, batch_size: int) -> TrainConfig:
    """The quickstart's small mixture at another width, with heads as wide."""
    run = quickstart_run("lory", "small", steps)
    model = scaled_shape(run.model, width, run.model.num_hidden_layers, width // HEAD_WIDTH)
    return replace(run, model=model, corpus=(corpus,), batch_size=batch_size)


def with_rate(cell: Cell, rate: str) -> Cell:
    """A cell trained with another learning rate."""
    optimizer = replace(cell.run.optimizer, learning_rate=float(rate))
    return replace(cell, run=replace(cell.run, optimizer=optimizer))


def main() -> None:
    """Tune the baseline at every width, train all designs with all seeds, evaluate, and write results."""
    arguments = parse()
    experiment, rates = Experiment.of(arguments), Rates.of(arguments)
    corpus = experiment.prepare()["similar"]
    cache = experiment.out / "ladder-evaluations"
    base = base_run(corpus, arguments.width, experiment.steps, arguments.batch_size)
    widths = [arguments.width >> i for i in reversed(range(arguments.sizes))]

    def tuned_cells(width: int, tries: Sequence[str]) -> list[Cell]:
        cells = make_cells([BASELINE], base, [], {RATE: list(tries)}, 1, widths)
        return [for_few_steps(cell) for cell in cells if cell.width == width]

    tried = sweep(tuned_cells, "width", widths, rates, experiment, cache)
    if lost := [width for width in widths if "rate" not in tried[width]]:
        raise SystemExit(f"all trainings diverged at width {lost[0]}: give other --rates")
    base = replace(base, seed=FIRST_REPORTED)
    made = make_cells([BASELINE, *arguments.designs], base, [], {}, experiment.seeds, widths)
    cells = [with_rate(for_few_steps(cell), tried[cell.width]["rate"]) for cell in made]
    trials = experiment.train(cells)
    found = measure_trials(trials, experiment.evaluation(arguments.instances), {}, cache)
    print(write_comparison({**found, **experiment.about}, experiment.out))
    results = {
        "experiment": "ladder",
        **tuned_results(experiment, found, KEPT, rates, tried, cells[-1].run),
        "ladder": found["ladder"],
    }
    experiment.write(results)


if __name__ == "__main__":
    main()
