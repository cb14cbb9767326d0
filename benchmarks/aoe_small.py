"""Autonomy of Experts at small scale: how far from Mixtral it is, and what of the distance comes from where.

python benchmarks/aoe_small.py --text PATH… --out WORK --results results/aoe_small.json
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from statistics import mean
from typing import Any

import torch
from torch import nn

from experiment import Experiment
from loriini.compare.running import place_cells
from loriini.compare.sections import mean_text
from loriini.compare.seeds import over_seeds
from loriini.model.decoder import LoriiniPreTrainedModel
from loriini.model.experts.stacked import FactorizedExperts
from loriini.recipes import SIZES, quickstart_run
from loriini.train.config import TrainConfig
from loriini.train.corpora import read_corpora
from loriini.train.loop import train
from loriini.train.upcycle import WarmupConfig

SMALL_FACTORS = "aoe-small-factors"
SIZE = "small"


def grid(steps: int) -> dict[str, TrainConfig]:
    """The quickstart's small models, in half its batch: both initialisations, and both starts of Mixtral.

    Every expert is as wide as the dense FFN.
    """
    mixtral, aoe = (quickstart_run(design, SIZE, steps, 0) for design in ("mixtral", "aoe"))
    runs = {
        "aoe": aoe,
        "mixtral-scratch": replace(mixtral, warmup=WarmupConfig(dense_share=0.0)),
        SMALL_FACTORS: aoe,
        "mixtral": mixtral,
    }
    width = SIZES[SIZE].shape.intermediate_size
    return {
        name: replace(run, batch_size=4, model=replace(run.model, intermediate_size=width))
        for name, run in runs.items()
    }


@contextmanager
def small_factors() -> Iterator[None]:
    """Scale both factors of gate projections to the initialiser's deviation, in this process."""
    initialize = LoriiniPreTrainedModel._init_weights

    @torch.no_grad()
    def initialize_small(self: LoriiniPreTrainedModel, module: nn.Module) -> None:
        initialize(self, module)
        if isinstance(module, FactorizedExperts):
            for factor in (module.low_proj, module.gate_proj):
                factor.mul_(self.config.initializer_range / factor.std())

    LoriiniPreTrainedModel._init_weights = initialize_small  # type: ignore[method-assign]
    try:
        yield
    finally:
        LoriiniPreTrainedModel._init_weights = initialize  # type: ignore[method-assign]


def add_differences(results: dict[str, Any]) -> None:
    """Add every run's distance from every other, paired by seed, to the results, and print them.

    Losses are the mean over domains of the held-out text's, in nats a token.
    """
    losses: dict[str, dict[int, float]] = defaultdict(dict)
    for row in results["results"]:
        losses[row["name"]][row["seed"]] = mean(math.log(p) for p in row["perplexity"].values())
    results["loss"] = {name: over_seeds([*of_seed.values()]).to_dict() for name, of_seed in losses.items()}
    results["difference"] = {
        f"{one} - {other}": over_seeds(
            [losses[one][seed] - losses[other][seed] for seed in losses[one]]
        ).to_dict()
        for one, other in combinations(losses, 2)
    }
    for name, found in (results["loss"] | results["difference"]).items():
        print(f"{name}: {mean_text(found, 3)}")


def main() -> None:
    """Train the small factors in this process, which alone knows them, and the rest as processes."""
    experiment = Experiment.parse(steps=150)
    corpus = experiment.prepare()["similar"]
    runs = {name: replace(run, corpus=(corpus,)) for name, run in grid(experiment.steps).items()}
    small = experiment.cells({SMALL_FACTORS: runs[SMALL_FACTORS]})
    with small_factors():
        for trial in place_cells(small, experiment.out / "runs"):
            train(trial.cell.run, read_corpora(trial.cell.run.corpus), trial.folder)
    results = experiment.compare(runs, experiment="aoe_small")
    add_differences(results)
    experiment.write(results)


if __name__ == "__main__":
    main()
