"""What the experiments share that tune learning rates: options, the sweep, what was tried, results."""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiment import CHARACTERS, Experiment, portable
from loriini.common.errors import InputError
from loriini.compare.cells import Cell
from loriini.compare.job import measure_trials
from loriini.train.config import TrainConfig

RATE = "optimizer.learning_rate"
EXTENSIONS = 2
"""How often rates are added where the best is at the edge of those tried."""
FIRST_REPORTED = 100
"""Of the seeds that are reported. Those from 0 choose the rate, whose loss is too low for them."""

DEVIATION = 0.64
"""Of initial weights, times √width: 0.02 at width 1024."""

Tried = dict[Any, dict[str, Any]]
CellsOf = Callable[[Any, Sequence[str]], list[Cell]]
"""Makes the cells of one thing that is tuned, with some rates and seed 0."""


def add_options(parser: argparse.ArgumentParser, rates: Sequence[str], of_rates: str) -> None:
    """The options of a sweep over `rates`, and sizes of training and evaluation."""
    parser.add_argument("--rates", nargs="+", default=rates, metavar="RATE", help=of_rates)
    parser.add_argument("--batch-size", type=int, default=2, help="instances of a step")
    parser.add_argument("--instances", type=int, default=32, help="held-out instances of each domain")


@dataclass(frozen=True)
class Rates:
    """The learning rates of a sweep, and how many seeds each is trained with."""

    values: tuple[str, ...]
    seeds: int

    @staticmethod
    def add_option(parser: argparse.ArgumentParser) -> None:
        """The option of the number of seeds; `add_options` has that of the rates."""
        of_each = "trainings with each rate; their seeds choose it and are not reported"
        parser.add_argument("--rate-seeds", type=int, default=1, metavar="N", help=of_each)

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Rates":
        if len(set(arguments.rates)) < 2:
            raise InputError("--rates: give two or more, of which the best is chosen")
        return cls(tuple(arguments.rates), arguments.rate_seeds)


def reported_seeds(count: int) -> range:
    """Seeds that have no part in the choice of rates."""
    return range(FIRST_REPORTED, FIRST_REPORTED + count)


def with_seeds(cells: Sequence[Cell], seeds: Iterable[int]) -> list[Cell]:
    """The cells with each seed, the first seed of all first."""
    return [replace(cell, run=replace(cell.run, seed=seed)) for seed in seeds for cell in cells]


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
    cells_of: CellsOf,
    key: str,
    tuned: Iterable[Any],
    rates: Rates,
    experiment: Experiment,
    cache: Path,
) -> Tried:
    """Train every one of `tuned` with every rate, and where the best is at the edge, with the next rate too.

    `tuned` are values of the variants' `key`. Returns what `tried_rates` says of all trials.
    """
    rates_of = {one: list(rates.values) for one in tuned}
    for extension in range(EXTENSIONS + 1):
        cells = [cell for one, tries in rates_of.items() for cell in cells_of(one, tries)]
        trials = experiment.train(with_seeds(cells, range(rates.seeds)))
        tried = tried_rates(measure_trials(trials, None, {}, cache), key)
        at_edge = [one for one in rates_of if tried[one].get("edge")]
        if extension == EXTENSIONS or not at_edge:
            break
        for one in at_edge:
            rates_of[one].append(next_rate(rates_of[one], tried[one]["rate"]))
    return tried


def next_rate(rates: Sequence[str], best: str) -> str:
    """Twice the best rate if it is the greatest, else half of it."""
    rate = float(best) * (2 if float(best) == max(map(float, rates)) else 0.5)
    digits, exponent = f"{rate:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def tried_rates(found: Mapping[str, Any], key: str) -> Tried:
    """For each value of the variants' `key` the best rate, unless all diverged, and whether it is at an edge.

    `training_loss` is the mean over seeds by rate, `by_seed` that of each seed; None where it diverged.
    """
    tried: Tried = {}
    for v in found["variants"]:
        one = tried.setdefault(v[key], {"training_loss": {}, "by_seed": defaultdict(dict)})
        one["training_loss"][v["settings"][RATE]] = v.get("training_loss", {}).get("mean")
        if v["chosen"] and v["finished_seeds"]:
            one |= {"rate": v["settings"][RATE], "edge": bool(v["edge"])}
    for cell in found["cells"]:
        loss = cell["training_loss"] if cell["state"] == "finished" else None
        tried[cell[key]]["by_seed"][str(cell["seed"])][cell["settings"][RATE]] = loss
    return tried


def tuned_results(
    experiment: Experiment,
    found: Mapping[str, Any],
    kept: Sequence[str],
    rates: Rates,
    tried: Tried,
    run: TrainConfig,
) -> dict[str, Any]:
    """The results of an experiment with tuned rates, of its variants those named in `kept`."""
    return {
        **experiment.about,
        "characters": CHARACTERS,
        "heldout": found["heldout"],
        "seeds": experiment.seeds,
        "rates": list(rates.values),
        "rate_seeds": rates.seeds,
        "tried": {str(key): one for key, one in tried.items()},
        "run": portable(run),
        "remarks": found["remarks"],
        "variants": [{key: v[key] for key in kept if key in v} for v in found["variants"]],
    }
