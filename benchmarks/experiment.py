"""What the experiments share: text prepared once, learning rates tuned, trainings scored, one JSON.

Trainings are folders of their own: the same command resumes an interrupted experiment.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from loriini.common.atomic import write_json, write_text
from loriini.common.errors import InputError
from loriini.common.hardware import describe_machine
from loriini.compare.job import measure_trainings
from loriini.compare.report import write_comparison
from loriini.compare.running import refuse_failures, threads_of, train_all
from loriini.compare.trainings import Training, place
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.text.documents import document_line
from loriini.data.read import input_identity
from loriini.data.read.document import Contexts, Document
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.data.read.split import split_documents
from loriini.evaluate.settings import EvaluationSettings

CHARACTERS, VOCAB_SIZE, LENGTH = 20_000_000, 2048, 512
SKIPPED_TOKENS = 128
"""Tokens at the start of an instance that no perplexity counts: the longest segment of the designs."""
EXTENSIONS = 2
"""How often rates are added if the best one is the least or the greatest of those tried."""
FIRST_REPORTED = 100
"""The first of the seeds that are reported. Those from 0 choose the rate, so their losses are too low."""
DEVIATION = 0.64
"""Standard deviation of initial weights times √width: 0.02 at width 1024."""
KEPT = (
    "name",
    "design",
    "width",
    "settings",
    "causality",
    "training_causality",
    "parameters",
    "flops_per_token",
    "finished_seeds",
    "diverged_seeds",
    "training_loss",
    "perplexity",
    "difference",
)
"""What is kept of a variant's results."""

CellOf = Callable[[Any, str], Training]
"""Makes the cell of one thing that is tuned, with a rate and any seed."""
Tried = dict[Any, dict[str, Any]]
"""By what is tuned: `training_loss` by rate, null where all seeds diverged, and the best `rate`."""


@dataclass(frozen=True)
class Experiment:
    """The arguments of an experiment's command line."""

    text: tuple[str, ...]
    out: Path
    results: Path
    steps: int
    seeds: int
    jobs: int
    rates: tuple[str, ...]
    rate_seeds: int
    batch_size: int
    instances: int
    contexts: ClassVar[Contexts] = "strung"

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Experiment":
        """The experiment of a command line. InputError for a single rate."""
        if len(set(arguments.rates)) < 2:
            raise InputError("--rates: give two or more; the best is chosen")
        given = {each.name: getattr(arguments, each.name) for each in fields(cls)}
        return cls(**{**given, "text": tuple(given["text"]), "rates": tuple(given["rates"])})

    @staticmethod
    def parser(steps: int, rates: Sequence[str], text_needed: bool = True) -> argparse.ArgumentParser:
        """The options of every experiment."""
        parser = argparse.ArgumentParser()
        add = parser.add_argument
        add(
            "--text",
            nargs="+",
            required=text_needed,
            default=(),
            metavar="PATH",
            help="documents; *.heldout.* are held out",
        )
        add("--out", type=Path, required=True, help="where corpora and runs are made")
        add("--results", type=Path, required=True, help="the JSON to write")
        add("--steps", type=int, default=steps)
        add("--seeds", type=int, default=3)
        add("--jobs", type=int, default=2)
        add("--rates", nargs="+", default=rates, metavar="RATE", help="learning rates to choose from")
        add("--rate-seeds", type=int, default=1, metavar="N", help="trainings with each rate, not reported")
        add("--batch-size", type=int, default=2, help="instances of a step")
        add("--instances", type=int, default=32, help="held-out instances of each domain")
        return parser

    @property
    def evaluation(self) -> EvaluationSettings:
        """How all models are scored."""
        heldout = (str(self.out / "heldout.jsonl"),)
        how = {"skip": SKIPPED_TOKENS, "instances": self.instances}
        return EvaluationSettings(heldout, contexts=self.contexts, **how)

    def sources(self) -> tuple[dict[str, list[Document]], dict[str, str], PrepareSettings]:
        """The documents of both sides, what identifies them, and how they become a corpus."""
        sides = split_documents(self.text, CHARACTERS, CHARACTERS // 10)
        settings = PrepareSettings(tokenizer=f"bpe:{VOCAB_SIZE}", length=LENGTH, workers=self.jobs)
        return sides, {**input_identity(self.text), "characters": str(CHARACTERS)}, settings

    def prepare(self) -> Path:
        """The corpus; the held-out documents become a file."""
        sides, identity, settings = self.sources()
        self.out.mkdir(parents=True, exist_ok=True)
        lines = map(document_line, sides[HELDOUT])
        write_text(self.out / "heldout.jsonl", b"".join(lines).decode())
        return prepare_documents(
            self.out / "corpus", lambda drop: sides[TRAIN], identity, settings
        ).folder.resolve()

    def train(self, cells: Iterable[Training]) -> list[Training]:
        """Train the cells that are not done; WorkerDied where one fails."""
        trainings = place(map(self.prepared, cells), self.out / "runs")
        refuse_failures(trainings, train_all(trainings, self.jobs))
        return trainings

    def prepared(self, training: Training) -> Training:
        """A training with the settings that all of the experiment's have; see `for_few_steps`."""
        return for_few_steps(training)

    def measured(self, trainings: Sequence[Training], scored: bool = True) -> dict[str, Any]:
        """What `loriini compare` measures: training and, if `scored`, held-out text."""
        return measure_trainings(trainings, self.evaluation if scored else None, {}, self.out / "evaluations")

    def tune(self, cell_of: CellOf, tuned: Sequence[Any]) -> Tried:
        """Train each of `tuned` with every rate, and with further ones while the best is at the edge.

        Held-out text has no part in the choice.
        """
        rates_of = {one: list(self.rates) for one in tuned}
        for extension in range(EXTENSIONS + 1):
            cells = {(one, rate): cell_of(one, rate) for one, rates in rates_of.items() for rate in rates}
            cells = {key: replace(cell, variant=f"{cell.variant} {key[1]}") for key, cell in cells.items()}
            trainings = self.train(with_seeds(cells.values(), range(self.rate_seeds)))
            keys = [key for _ in range(self.rate_seeds) for key in cells]
            losses = defaultdict[Any, list[float]](list)
            for key, row in zip(keys, self.measured(trainings, scored=False)["cells"], strict=True):
                losses[key] += [row["training_loss"]] if row["state"] == "finished" else []
            tried = {one: best_rate({r: losses[one, r] for r in rates}) for one, rates in rates_of.items()}
            at_edge = [one for one, found in tried.items() if is_edge(found)]
            if not at_edge or extension == EXTENSIONS:
                break
            for one in at_edge:
                rates_of[one].append(next_rate(tried[one]["rate"], rates_of[one]))
        return tried

    def train_best(self, cell_of: CellOf, tried: Tried) -> list[Training]:
        """Train each that has a best rate with it, and with seeds that had no part in the choice."""
        best = [cell_of(one, found["rate"]) for one, found in tried.items() if found["rate"]]
        return self.train(with_seeds(best, range(FIRST_REPORTED, FIRST_REPORTED + self.seeds)))

    def write(self, trainings: Sequence[Training], tried: Tried, **about: Any) -> None:
        """Score trainings, write the results file and the report; differences are to the first variant."""
        found = self.measured(trainings)
        machine = {**describe_machine(), "jobs": self.jobs, "threads": threads_of(self.jobs)}
        about |= {"date": time.strftime("%Y-%m-%d"), "machine": machine}
        print(write_comparison({**found, **about}, self.out))
        run = trainings[0].run.to_dict() | {"corpus": ["corpus"]}
        self.results.parent.mkdir(parents=True, exist_ok=True)
        results = {
            **about,
            "seeds": self.seeds,
            "rate_seeds": self.rate_seeds,
            "run": run,
            "heldout": found["heldout"],
            "tried": {str(one): of_one for one, of_one in tried.items()},
            "variants": [{key: v[key] for key in KEPT if key in v} for v in found["variants"]],
        }
        write_json(self.results, results | {"ladder": found["ladder"]} if "ladder" in found else results)


def with_seeds(cells: Iterable[Training], seeds: Iterable[int]) -> list[Training]:
    """The cells with each seed, the first seed of all first."""
    cells = list(cells)
    return [replace(cell, run=replace(cell.run, seed=seed)) for seed in seeds for cell in cells]


def for_few_steps(cell: Training) -> Training:
    """A cell with all weights of standard deviation DEVIATION/√width, and a longer warm-up.

    With 0.02 and few steps of warm-up, narrow models stay at the first plateau of their loss for as long as
    chance decides.
    """
    deviation = DEVIATION * cell.run.model.hidden_size**-0.5
    model = replace(cell.run.model, initializer_range=deviation, expert_scale="initializer")
    optimizer = replace(cell.run.optimizer, name="adamw", warmup=0.2)
    return replace(cell, run=replace(cell.run, model=model, optimizer=optimizer))


def with_rate(cell: Training, rate: str) -> Training:
    """A cell trained with another learning rate."""
    optimizer = replace(cell.run.optimizer, learning_rate=float(rate))
    return replace(cell, run=replace(cell.run, optimizer=optimizer))


def best_rate(losses: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The mean training loss of each rate, and the rate of the lowest; null where all seeds diverged."""
    means = {rate: fmean(of_rate) if of_rate else None for rate, of_rate in losses.items()}
    finite = {rate: mean for rate, mean in means.items() if mean is not None}
    return {"training_loss": means, "rate": min(finite, key=finite.__getitem__, default=None)}


def is_edge(found: Mapping[str, Any]) -> bool:
    """Whether the best rate is the least or the greatest of those tried."""
    rates = sorted(map(float, found["training_loss"]))
    return found["rate"] is not None and float(found["rate"]) in (rates[0], rates[-1])


def next_rate(best: str, rates: Sequence[str]) -> str:
    """Twice the best rate if it is the greatest, else half of it."""
    return f"{float(best) * (2 if float(best) == max(map(float, rates)) else 0.5):g}"
