"""Dense, Lory and Mixtral at four widths on the same text: how a mixture's gain changes with compute.

python benchmarks/ladder.py --text PATH… --out WORK --results benchmarks/results/ladder.json

At each width the dense model is trained once with each learning rate; all designs of this width are trained
with the one of its lowest training loss, so that only the baseline is tuned. All read the same tokens.
`figures.py` makes docs/ladder.md of the results.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import CHARACTERS, SKIPPED_TOKENS, Experiment, machine, portable, train
from loriini.atomic import write_json
from loriini.compare.cells import Cell, make_cells
from loriini.compare.job import measure_trials
from loriini.compare.report import write_comparison
from loriini.compare.running import Trial, place_cells
from loriini.compare.sizes import Ladder
from loriini.evaluate.runs import EvaluationSettings
from loriini.recipes import quickstart_run
from loriini.recipes.redesign import scaled_shape
from loriini.routing import DESIGNS
from loriini.train.run import Run

BASELINE = "dense"
OTHERS = ("lory", "mixtral")
RATES = ("1e-3", "2e-3", "4e-3", "8e-3")
RATE = "optimizer.learning_rate"
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
    parser = Experiment.parser(steps=640)
    designs, rates = "beside dense", "learning rates, two or more"
    parser.add_argument(
        "--designs", nargs="+", default=OTHERS, choices=DESIGNS, metavar="DESIGN", help=designs
    )
    parser.add_argument("--rates", nargs="+", default=RATES, metavar="RATE", help=rates)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the largest size")
    parser.add_argument("--sizes", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4, help="instances of a step")
    parser.add_argument("--instances", type=int, default=32, help="held-out instances of each domain")
    return parser.parse_args()


def base_run(corpus: Path, width: int, steps: int, batch_size: int) -> Run:
    """The quickstart's small mixture at another width, with heads as wide."""
    run = quickstart_run("lory", "small", steps)
    model = scaled_shape(run.model, width, run.model.num_hidden_layers, width // HEAD_WIDTH)
    return replace(run, model=model, corpus=(corpus,), batch_size=batch_size)


def rates_by_width(trials: Sequence[Trial], cache: Path) -> dict[int, dict[str, Any]]:
    """What was tried of the baseline at each width, and the rate of the lowest training loss."""
    tried: dict[int, dict[str, Any]] = {}
    for v in measure_trials(trials, None, {}, cache)["variants"]:
        one = tried.setdefault(v["width"], {"training_loss": {}})
        one["training_loss"][v["settings"][RATE]] = v.get("training_loss", {}).get("mean")
        if v["chosen"]:
            one |= {"rate": v["settings"][RATE], "edge": bool(v["edge"])}
    return tried


def with_rate(cell: Cell, rate: str) -> Cell:
    """A cell trained with another learning rate."""
    optimizer = replace(cell.run.optimizer, learning_rate=float(rate))
    return replace(cell, run=replace(cell.run, optimizer=optimizer))


def main() -> None:
    """Tune the baseline at every width, train all designs with all seeds, evaluate, and write results."""
    arguments = parse()
    experiment = Experiment.of(arguments)
    corpus = experiment.prepare()["similar"]
    cache, runs = experiment.out / "ladder-evaluations", experiment.out / "runs"
    base = base_run(corpus, arguments.width, experiment.steps, arguments.batch_size)
    ladder = Ladder(arguments.sizes, "equal")
    swept = place_cells(make_cells([BASELINE], base, [], {RATE: arguments.rates}, 1, ladder), runs)
    train(swept, experiment.jobs)
    tried = rates_by_width(swept, cache)
    cells = make_cells([BASELINE, *arguments.designs], base, [], {}, experiment.seeds, ladder)
    trials = place_cells([with_rate(cell, tried[cell.run.model.hidden_size]["rate"]) for cell in cells], runs)
    train(trials, experiment.jobs)
    evaluation = EvaluationSettings(
        (str(experiment.heldout),), skip=SKIPPED_TOKENS, instances=arguments.instances
    )
    found = measure_trials(trials, evaluation, {}, cache)
    about = {"date": time.strftime("%Y-%m-%d"), "machine": machine(experiment.jobs)}
    print(write_comparison({**found, **about, "ladder_tokens": ladder.tokens}, experiment.out))
    results = {
        "experiment": "ladder",
        **about,
        "characters": CHARACTERS,
        "heldout": found["heldout"],
        "seeds": experiment.seeds,
        "rates": list(arguments.rates),
        "tried": {str(width): one for width, one in tried.items()},
        "run": portable(base),
        "remarks": found["remarks"],
        "variants": [{key: v[key] for key in KEPT if key in v} for v in found["variants"]],
        "ladder": found["ladder"],
    }
    experiment.results.parent.mkdir(parents=True, exist_ok=True)
    write_json(experiment.results, results)


if __name__ == "__main__":
    main()
