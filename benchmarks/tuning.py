"""What the experiments share that tune learning rates: options, the sweep, what was tried, results."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment import CHARACTERS, Experiment, portable, train
from loriini.compare.cells import Cell
from loriini.compare.job import measure_trials
from loriini.compare.running import Trial, place_cells
from loriini.train.run import Run

RATE = "optimizer.learning_rate"
FIRST_SEED = 1
"""Of those that are reported; seed 0 chooses the rate, and its loss is too low for it."""
EXTENSIONS = 2
"""How often rates are added where the best is at the edge of those tried."""

DEVIATION = 0.64
"""Of initial weights, times √width: 0.02 at width 1024."""

Tried = dict[Any, dict[str, Any]]


def add_options(parser: argparse.ArgumentParser, rates: Sequence[str], of_rates: str) -> None:
    """The options of a sweep over `rates`, and sizes of training and evaluation."""
    parser.add_argument("--rates", nargs="+", default=rates, metavar="RATE", help=of_rates)
    parser.add_argument("--batch-size", type=int, default=2, help="instances of a step")
    parser.add_argument("--instances", type=int, default=32, help="held-out instances of each domain")


def for_few_steps(cell: Cell) -> Cell:
    """A cell with weights of standard deviation DEVIATION/√width, and a longer warm-up.

    With 0.02 and few steps of warm-up, narrow models stay at the first plateau of their loss for as long as
    chance decides: a dense model of width 64 ended at 5.31 and 5.41 nats (two seeds, 600 steps of 1,024
    tokens), with these settings at 5.08 and 5.20.
    """
    model = replace(cell.run.model, initializer_range=DEVIATION * cell.run.model.hidden_size**-0.5)
    optimizer = replace(cell.run.optimizer, warmup=0.2)
    return replace(cell, run=replace(cell.run, model=model, optimizer=optimizer))


def sweep(
    cells_of: Callable[[Any, Sequence[str]], Sequence[Cell]],
    key: str,
    tuned: Iterable[Any],
    rates: Sequence[str],
    experiment: Experiment,
    cache: Path,
) -> tuple[list[Trial], Tried]:
    """Train every one of `tuned` with every rate, and where the best is at the edge, with the next rate too.

    `cells_of` makes the cells of one of `tuned`, a value of the variants' `key`, with some rates. Returns all
    trials, and what `tried_rates` says of them.
    """
    rates_of = {one: list(rates) for one in tuned}
    for extension in range(EXTENSIONS + 1):
        cells = [cell for one, tries in rates_of.items() for cell in cells_of(one, tries)]
        trials = place_cells(cells, experiment.out / "runs")
        train(trials, experiment.jobs)
        tried = tried_rates(measure_trials(trials, None, {}, cache)["variants"], key)
        at_edge = [one for one in rates_of if tried[one].get("edge")]
        if extension == EXTENSIONS or not at_edge:
            break
        for one in at_edge:
            rates_of[one].append(next_rate(rates_of[one], tried[one]["rate"]))
    return trials, tried


def next_rate(rates: Sequence[str], best: str) -> str:
    """Twice the best rate if it is the greatest, else half of it."""
    rate = float(best) * (2 if float(best) == max(map(float, rates)) else 0.5)
    digits, exponent = f"{rate:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def tried_rates(variants: Iterable[Mapping[str, Any]], key: str) -> Tried:
    """For each value of a variant's `key`: training loss by rate, the best, and whether it is at the edge."""
    tried: Tried = {}
    for v in variants:
        one = tried.setdefault(v[key], {"training_loss": {}})
        one["training_loss"][v["settings"][RATE]] = v.get("training_loss", {}).get("mean")
        if v["chosen"]:
            one |= {"rate": v["settings"][RATE], "edge": bool(v["edge"])}
    return tried


def tuned_results(
    experiment: Experiment,
    found: Mapping[str, Any],
    kept: Sequence[str],
    rates: Sequence[str],
    tried: Tried,
    run: Run,
) -> dict[str, Any]:
    """The results of an experiment with tuned rates, of its variants those named in `kept`."""
    return {
        **experiment.about,
        "characters": CHARACTERS,
        "heldout": found["heldout"],
        "seeds": experiment.seeds,
        "rates": list(rates),
        "tried": {str(key): one for key, one in tried.items()},
        "run": portable(run),
        "remarks": found["remarks"],
        "variants": [{key: v[key] for key in kept if key in v} for v in found["variants"]],
    }
