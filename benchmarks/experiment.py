"""What the experiments share: text that is prepared once, cells that are trained and scored, one JSON.

Runs are independent folders, so the same command resumes an interrupted experiment.
"""

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json, write_text
from loriini.common.hardware import describe_machine
from loriini.compare.cells import Cell
from loriini.compare.job import measure_trials
from loriini.compare.report import write_comparison
from loriini.compare.running import Trial, place_cells, refuse_failures, threads_of, train_trials
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.prepare.text.documents import document_line
from loriini.data.read import input_identity
from loriini.data.read.records import MAX_DOCUMENT_CHARACTERS
from loriini.data.read.split import HELDOUT, TRAIN, split_documents
from loriini.evaluate.runs import EvaluationSettings
from loriini.train.config import TrainConfig

CHARACTERS, VOCAB_SIZE = 20_000_000, 2048
SKIPPED_TOKENS = 128
"""Of every instance, for all models: the longest segment of the grids."""


@dataclass(frozen=True)
class Experiment:
    """The arguments of an experiment's command line."""

    text: tuple[str, ...]
    out: Path
    results: Path
    steps: int
    seeds: int
    jobs: int

    @classmethod
    def parse(cls, steps: int) -> "Experiment":
        return cls.of(cls.parser(steps).parse_args())

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Experiment":
        given = {each.name: getattr(arguments, each.name) for each in fields(cls)}
        return cls(**{**given, "text": tuple(given["text"])})

    @staticmethod
    def parser(steps: int) -> argparse.ArgumentParser:
        """The options of every experiment."""
        parser = argparse.ArgumentParser()
        text = "documents; files *.heldout.* are held out if there are any"
        parser.add_argument("--text", nargs="+", required=True, metavar="PATH", help=text)
        parser.add_argument("--out", type=Path, required=True, help="where corpora and runs are made")
        parser.add_argument("--results", type=Path, required=True, help="the JSON to write")
        parser.add_argument("--steps", type=int, default=steps)
        parser.add_argument("--seeds", type=int, default=3)
        parser.add_argument("--jobs", type=int, default=2)
        return parser

    @property
    def heldout(self) -> Path:
        return self.out / "heldout.jsonl"

    @property
    def about(self) -> dict[str, Any]:
        """Today's date, this machine, and how many trainings share it."""
        machine = {**describe_machine(), "jobs": self.jobs, "threads": threads_of(self.jobs)}
        return {"date": time.strftime("%Y-%m-%d"), "machine": machine}

    def evaluation(self, instances: int | None = None) -> EvaluationSettings:
        """How all models are scored, on so many instances of each domain (None: all)."""
        return EvaluationSettings((str(self.heldout),), skip=SKIPPED_TOKENS, instances=instances)

    def write(self, results: Mapping[str, Any]) -> None:
        """Write the results file."""
        self.results.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.results, results)

    def prepare(
        self, orders: Sequence[str] = ("similar",), length: int = 512, longest: int = MAX_DOCUMENT_CHARACTERS
    ) -> dict[str, Path]:
        """The corpora by order, all of the same whole documents, and the held-out documents as a file.

        Documents of more than `longest` characters are left out.
        """
        sides = split_documents(self.text, CHARACTERS, CHARACTERS // 10, longest=longest)
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(self.heldout, b"".join(map(document_line, sides[HELDOUT])).decode())
        corpora: dict[str, Path] = {}
        tokenizer = f"bpe:{VOCAB_SIZE}"
        identity = {
            **input_identity(self.text),
            "characters": str(CHARACTERS),
            "longest": str(longest),
        }
        for order in orders:
            settings = PrepareSettings(tokenizer=tokenizer, length=length, order=order, workers=self.jobs)
            corpus = prepare_documents(self.out / order, lambda drop: sides[TRAIN], identity, settings)
            corpora[order], tokenizer = corpus.folder.resolve(), str(corpus.tokenizer)
        return corpora

    def cells(self, runs: Mapping[str, TrainConfig]) -> list[Cell]:
        """Every run with every seed, the first seed of all first."""
        return [
            Cell(name, replace(run, name=name, seed=seed))
            for seed in range(self.seeds)
            for name, run in runs.items()
        ]

    def train(self, cells: Iterable[Cell]) -> list[Trial]:
        """Train the cells that are not done; WorkerDied where one fails."""
        trials = place_cells(cells, self.out / "runs")
        refuse_failures(trials, train_trials(trials, self.jobs))
        return trials

    def compare(self, runs: Mapping[str, TrainConfig], **about: Any) -> dict[str, Any]:
        """Train and score every run with every seed; write the results, and `report.html` into `out`."""
        trials = place_cells(self.cells(runs), self.out / "runs")
        failures = train_trials(trials, self.jobs)
        found = measure_trials(trials, self.evaluation(), failures, self.out / "evaluations")
        about |= self.about
        print(write_comparison({**found, **about}, self.out))
        results = {
            **about,
            "runs": {name: portable(run) for name, run in runs.items()},
            "skipped_tokens": SKIPPED_TOKENS,
            "characters": CHARACTERS,
            "results": found["cells"],
            "variants": found["variants"],
        }
        self.write(results)
        return results


def portable(run: TrainConfig) -> dict[str, Any]:
    """A run without the paths of this machine."""
    return {**run.to_dict(), "corpus": [path.name for path in run.corpus]}
