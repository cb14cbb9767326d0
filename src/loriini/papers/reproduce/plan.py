"""The runs that items need at a scale, each placed in a folder that all items share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from loriini.compare.trainings import Training, place
from loriini.papers.published import PaperRun
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.scales import Scale, scaled_run
from loriini.papers.reproduce.texts import Texts

RUNS = "runs"


class ItemRun(NamedTuple):
    """A run that an item needs: the row and the text that it stands for, and the text's kind."""

    row: str
    text: str
    kind: str
    paper: PaperRun


@dataclass(frozen=True)
class ItemTraining:
    """An item's run with a seed, as a trial in a folder; items share trials."""

    row: str
    text: str
    kind: str
    trial: Training

    @property
    def corpus(self) -> Path:
        """What it is trained on."""
        return self.trial.run.corpus[0]


@dataclass(frozen=True)
class Plan:
    """An item and its trainings."""

    experiment: Experiment
    trainings: tuple[ItemTraining, ...]

    @property
    def trials(self) -> list[Training]:
        """What is trained, each once: rows may share a trial."""
        return list({training.trial.folder: training.trial for training in self.trainings}.values())


def item_runs(experiment: Experiment, scale: Scale) -> Iterator[ItemRun]:
    """The runs of an item, for the texts that the scale uses."""
    for i, (text, kind) in enumerate(islice(experiment.texts.items(), scale.texts)):
        for row, paper in experiment.runs.items():
            if not (i and row in experiment.only_first_text):
                yield ItemRun(row, text, kind, paper)


def make_plans(
    experiments: Sequence[Experiment], scale: Scale, texts: Texts, seeds: int, out: Path
) -> list[Plan]:
    """The plans of several items; their corpora are prepared, their runs not yet trained."""
    plans = []
    for experiment in experiments:
        wanted = list(item_runs(experiment, scale))
        runs = [texts.place(scaled_run(each.paper, scale), each.kind) for each in wanted]
        seeded = [
            Training(f"{run.name} {each.kind}", replace(run, seed=seed))
            for seed in range(seeds)
            for each, run in zip(wanted, runs, strict=True)
        ]
        trials = place(seeded, out / RUNS)
        trainings = (
            ItemTraining(each.row, each.text, each.kind, trial)
            for each, trial in zip(seeds * wanted, trials, strict=True)
        )
        plans.append(Plan(experiment, tuple(trainings)))
    return plans


def unique_trials(plans: Sequence[Plan]) -> list[Training]:
    """The trainings of all plans, each once, in the order of the plans."""
    found: Mapping[Path, Training] = {trial.folder: trial for plan in plans for trial in plan.trials}
    return list(found.values())
