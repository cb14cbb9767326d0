"""Autonomy of Experts at small scale: how far from Mixtral it is, and what of the distance comes from where.

python benchmarks/aoe_small.py --text TEXT --out WORK --results results/aoe_small.json
"""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import nn

from experiment import experiment
from loriini.atomic import write_json
from loriini.model.experts import FactorizedExperts
from loriini.model.modeling import LoriiniPreTrainedModel
from loriini.recipes import quickstart_run
from loriini.train.run import Run
from loriini.train.upcycle import WarmupConfig

SMALL_FACTORS = "aoe-small-factors"
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t, for 2 to 10 seeds."""


def grid(out: Path, steps: int) -> dict[str, Run]:
    """The quickstart's small models, in half its batch: both initialisations, and both starts of Mixtral."""
    mixtral, aoe = (quickstart_run(design, "small", steps, 0) for design in ("mixtral", "aoe"))
    runs = {
        "aoe": aoe,
        "mixtral-scratch": replace(mixtral, warmup=WarmupConfig(dense_share=0.0)),
        SMALL_FACTORS: aoe,
        "mixtral": mixtral,
    }
    corpus = ((out / "similar").resolve(),)
    return {name: replace(run, name=name, corpus=corpus, batch_size=4) for name, run in runs.items()}


def start_with_small_factors() -> None:
    """Scale both factors of gate projections to the initialiser's deviation, in this process."""
    initialize = LoriiniPreTrainedModel._init_weights

    @torch.no_grad()
    def initialize_small(self: LoriiniPreTrainedModel, module: nn.Module) -> None:
        initialize(self, module)
        if isinstance(module, FactorizedExperts):
            for factor in (module.low_proj, module.gate_proj):
                factor.mul_(self.config.initializer_range / factor.std())

    LoriiniPreTrainedModel._init_weights = initialize_small  # type: ignore[method-assign]


def add_differences(results: Path) -> None:
    """Add every run's distance from every other, paired by seed, to the file of results, and print them.

    Losses are the mean over domains of the held-out text's, in nats a token.
    """
    written = json.loads(results.read_text())
    losses: dict[str, dict[int, float]] = defaultdict(dict)
    for row in written["results"]:
        losses[row["name"]][row["seed"]] = mean(math.log(p) for p in row["perplexity"].values())
    written["loss"] = {name: interval(of_seed.values()) for name, of_seed in losses.items()}
    written["difference"] = {
        f"{one} - {other}": interval(losses[one][seed] - losses[other][seed] for seed in losses[one])
        for one, other in combinations(losses, 2)
    }
    write_json(results, written)
    for name, (center, half) in (written["loss"] | written["difference"]).items():
        print(f"{name}: {center:.3f} ± {half:.3f}")


def interval(of_seeds: Iterable[float]) -> tuple[float, float]:
    """The mean over 2 to 10 seeds and half the width of its 95 % interval."""
    values = list(of_seeds)
    return mean(values), STUDENT[len(values) - 2] * stdev(values) / len(values) ** 0.5


if __name__ == "__main__":
    if SMALL_FACTORS in sys.argv:  # `--only`: every run is a process of its own
        start_with_small_factors()
    results = experiment(__file__, grid, ("similar",), steps=150, experiment="aoe_small")
    if "--only" not in sys.argv:
        add_differences(results)
