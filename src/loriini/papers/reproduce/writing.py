"""An item's results and report, written from its trainings and what is computed without one."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_object
from loriini.common.progress import inform
from loriini.data.jobs.lock import waiting_lock
from loriini.papers.reproduce.claims.measured import Measures
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.measures import measure
from loriini.papers.reproduce.plan import ItemTraining, Plan
from loriini.papers.reproduce.report import write_item_report, write_overview
from loriini.papers.reproduce.results import RESULTS, MeasuredTraining, item_results
from loriini.papers.reproduce.texts import Texts


@dataclass(frozen=True)
class ItemWriter:
    """Measures trainings and writes items into the folder `out`, which keeps what was measured."""

    texts: Texts
    seeds: int
    out: Path

    @property
    def measures(self) -> Path:
        """The folder of what was measured; whoever holds its lock writes reports."""
        return self.out / "measures"

    def measure(self, training: ItemTraining, names: Sequence[str]) -> Measures:
        """The named measures of a training, on held-out text of the kind that it was trained on."""
        kind, skip = training.kind, self.texts.scale.segment_length
        of_kind = partial(self.texts.instances, tokenizer_of=kind, corpus=training.corpus)
        return measure(training.trial, names, kind, of_kind, skip, self.measures)

    def write(self, plan: Plan) -> None:
        """Write an item's results and report, and the overview."""
        experiment, folder = plan.experiment, self.out / plan.experiment.item
        own = self._measured(plan.own, experiment)
        done = (training for training in plan.further if training.trial.is_done)
        further = self._measured(done, experiment)
        results = item_results(
            self._with_text(plan), own, further, self.compute(experiment), self._about(experiment)
        )
        with waiting_lock(self.measures):
            folder.mkdir(exist_ok=True)
            write_json(folder / RESULTS, results, sort_keys=False)
            write_item_report(results, folder)
            write_overview(self.out)
        inform(f"{experiment.item}: {results['sentence']}")

    def overview(self) -> Path:
        """Write the overview of all items in the folder."""
        with waiting_lock(self.measures):
            return write_overview(self.out)

    def compute(self, experiment: Experiment) -> Mapping[str, Any]:
        """What an item computes without a training, once for each number of seeds.

        Items of the same computation share it (`computed_as`). With a `remark` something could not be
        measured, so it is tried again.
        """
        if experiment.compute is None:
            return {}
        path = self.measures / (experiment.computed_as or experiment.item) / f"{self.seeds}-seeds.json"
        with waiting_lock(path.parent):
            found = read_object(path, "remove it") if path.exists() else {}
            if not found or "remark" in found:
                write_json(path, experiment.compute(self.texts.scale, self.seeds), sort_keys=False)
                found = read_object(path, "remove it")
        return found

    def _measured(self, trainings: Iterable[ItemTraining], experiment: Experiment) -> list[MeasuredTraining]:
        return [
            (training, self.measure(training, experiment.measures) if training.trial.is_done else {})
            for training in trainings
        ]

    def _with_text(self, plan: Plan) -> Experiment:
        """The experiment with notes: what its texts have in common, and how much there is of its own kind."""
        experiment = plan.experiment
        same = (
            f"{text} is left out: its domains here are those of {other}"
            for text, other in plan.left_out.items()
        )
        amounts = [] if experiment.kind is None else [self.texts.amounts(experiment.kind)]
        return replace(experiment, note="; ".join(filter(None, (experiment.note, *same, *amounts))))

    def _about(self, experiment: Experiment) -> dict[str, Any]:
        """Scale, seeds, text, machine and date of results."""
        machine = describe_machine()
        if not experiment.timed:
            del machine["precision"]  # which the runs decide
        return {
            "scale": self.texts.scale.name,
            "seeds": self.seeds,
            "text": [Path(path).name for path in self.texts.source],
            "machine": machine,
            "date": time.strftime("%Y-%m-%d"),
        }
