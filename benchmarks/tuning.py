"""What the experiments share that tune learning rates: options, what was tried, results."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiment import CHARACTERS, Experiment, portable
from loriini.train.run import Run

RATE = "optimizer.learning_rate"


def add_options(parser: argparse.ArgumentParser, rates: Sequence[str], of_rates: str) -> None:
    """The options of a sweep over `rates`, and sizes of training and evaluation."""
    parser.add_argument("--rates", nargs="+", default=rates, metavar="RATE", help=of_rates)
    parser.add_argument("--batch-size", type=int, default=4, help="instances of a step")
    parser.add_argument("--instances", type=int, default=32, help="held-out instances of each domain")


def tried_rates(variants: Iterable[Mapping[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """For each value of a variant's `key`: training loss by rate, the best, and whether it is at the edge."""
    tried: dict[Any, dict[str, Any]] = {}
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
    tried: Mapping[Any, Any],
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
