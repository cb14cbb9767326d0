"""Optimizers, scales of experts and learning rates for nine designs, at the quickstart's size, on its text.

python benchmarks/training_well.py --out WORK --results benchmarks/results/training_well.json [--text PATH…]

Each of VARIANTS has its rate chosen by trainings of --steps, and is then trained with it for --final-steps,
with seeds that had no part in the choice. The same command resumes.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from experiment import FIRST_REPORTED, Experiment, with_rate, with_seeds
from loriini import DESIGNS, LoriiniForCausalLM
from loriini.compare.trainings import Training
from loriini.data.prepare.prepare import open_corpus
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read import input_identity
from loriini.data.read.document import Contexts, Document
from loriini.data.read.local_text import collect_local_text
from loriini.quickstart.settings import Quickstart
from loriini.recipes import quickstart_run
from loriini.train.upcycle import WarmupConfig

RATES = ("2e-3", "4e-3", "8e-3")


class Variant(NamedTuple):
    """A design, its optimizer, and where its experts start: an `expert_scale`, or copied by a `warm-up`."""

    design: str
    optimizer: str = "muon"
    start: str = "dense"

    def __str__(self) -> str:
        return " ".join(self)


VARIANTS = (
    *(Variant(design) for design in ("dense", "lory", "mixtral")),
    *(Variant("lory", "muon", start) for start in ("copies", "warm-up")),
    *(Variant(design, "adamw") for design in ("dense", "lory")),
    *(Variant(design) for design in ("deepseek-v3", "ec-token", "aoe", "switch", "relu", "prefix")),
    *(Variant(design, "muon", "initializer") for design in ("lory", "mixtral", "ec-token", "switch")),
    *(Variant(design, "adamw", "initializer") for design in ("lory", "mixtral", "ec-token", "switch")),
    Variant("mixtral", "adamw"),
)
"""In the order of their trainings: what decides most comes first."""


@dataclass(frozen=True)
class Sweep(Experiment):
    """The experiment, on the quickstart's text and with its settings unless `--text` is given."""

    final_steps: int = 2000
    contexts: ClassVar[Contexts] = "documents"

    def sources(self) -> tuple[dict[str, list[Document]], dict[str, str], PrepareSettings]:
        """Those of the quickstart, unless there is `--text`."""
        if self.text:
            return super().sources()
        return collect_local_text(), input_identity(()), Quickstart().prepare_settings()

    def prepared(self, training: Training) -> Training:
        """The quickstart's weights and warm-up of rates: trainings are long enough for them."""
        return training


def training_of(variant: Variant, rate: str, corpus: Path, steps: int) -> Training:
    """The training of a variant."""
    run = quickstart_run(variant.design, "small", steps)
    warm = variant.start == "warm-up"
    run = replace(
        run,
        corpus=(corpus,),
        model=replace(run.model, expert_scale="dense" if warm else variant.start),
        optimizer=replace(run.optimizer, name=variant.optimizer),
        warmup=WarmupConfig() if warm else WarmupConfig(0.0),
    )
    return with_rate(Training(str(variant), run), rate)


@torch.no_grad()
def branch_rms(corpus: Path) -> dict[str, dict[str, float]]:
    """What untrained FFNs add on text, by design and `expert_scale`: the root mean square over dense's.

    Of eight instances, over three seeds.
    """
    instances = open_corpus(corpus).instances
    tokens_BL = torch.from_numpy(instances.read(np.arange(8)))

    def of(design: str, scale: str, seed: int) -> float:
        torch.manual_seed(seed)
        run = quickstart_run(design, "small")
        run = replace(run, model=replace(run.model, expert_scale=scale))
        model = LoriiniForCausalLM(run.config(instances.vocab_size)).train()
        added: list[Tensor] = []
        for mixture in model.model.mixtures:
            mixture.register_forward_hook(lambda *call: added.append(call[-1][0]))
        labels = torch.arange(8) if model.config.routed_by_label else None
        model(tokens_BL, routing_labels=labels)
        return torch.stack(added).square().mean().sqrt().item()

    def mean(design: str, scale: str) -> float:
        return fmean(of(design, scale, seed) for seed in range(3))

    dense, scales = mean("dense", "dense"), ("initializer", "dense")
    return {
        name: {scale: mean(name, scale) / dense for scale in scales} for name in DESIGNS if name != "dense"
    }


def main() -> None:
    """Choose each variant's rate, train it with other seeds, and write results and report."""
    parser = Sweep.parser(steps=500, rates=RATES, text_needed=False)
    parser.set_defaults(batch_size=8, instances=160)
    parser.add_argument("--final-steps", type=int, default=2000)
    every = len(VARIANTS)
    parser.add_argument(
        "--variants", type=int, default=every, metavar="N", help="those that rates are tried with"
    )
    parser.add_argument(
        "--finals", type=int, default=every, metavar="N", help="those that are trained with seeds"
    )
    arguments = parser.parse_args()
    sweep = Sweep.of(arguments)
    corpus = sweep.prepare()
    variants = VARIANTS[: arguments.variants]
    tried = sweep.tune(partial(training_of, corpus=corpus, steps=sweep.steps), variants)
    of = partial(training_of, corpus=corpus, steps=sweep.final_steps)
    finals = variants[: arguments.finals]
    best = [of(variant, rate) for variant in finals if (rate := tried[variant]["rate"])]
    seeds = range(FIRST_REPORTED, FIRST_REPORTED + sweep.seeds)
    done = sweep.train(with_seeds(best, seeds))
    sweep.write(done, tried, experiment="training well", branch_rms=branch_rms(corpus))


if __name__ == "__main__":
    main()
