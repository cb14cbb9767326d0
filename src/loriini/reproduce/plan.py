"""The runs that items need at a scale, each placed in a folder that all items share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from loriini.compare.cells import Cell
from loriini.compare.running import Trial, place_cells
from loriini.published.items import PaperRun
from loriini.reproduce.experiments.experiment import Experiment
from loriini.reproduce.scales import Scale, scaled_run
from loriini.reproduce.texts import Texts

RUNS = "runs"


@dataclass(frozen=True)
class Placed:
    """One training of an item: the row and the text that it stands for."""

    row: str
    text: str
    kind: str
    trial: Trial


@dataclass(frozen=True)
class Plan:
    """An item and its trainings."""

    experiment: Experiment
    placed: tuple[Placed, ...]
    further: tuple[Placed, ...] = ()
    """The trainings of its reasons."""
    explained_by: frozenset[str] = frozenset()
    """Those of these rows are trained, too."""

    @property
    def trials(self) -> list[Trial]:
        """What is trained, each once: rows may share trainings."""
        wanted = (*self.placed, *(placed for placed in self.further if placed.row in self.explained_by))
        return list({placed.trial.folder: placed.trial for placed in wanted}.values())


class Wanted(NamedTuple):
    """A run of an item on a text."""

    row: str
    text: str
    kind: str
    paper: PaperRun


def item_runs(experiment: Experiment, scale: Scale) -> Iterator[Wanted]:
    """The runs of an item, for the texts that the scale uses."""
    texts = list(experiment.texts.items())
    for i, (text, kind) in enumerate(texts[: scale.texts]):
        for name, paper in experiment.runs.items():
            if i == 0 or name not in experiment.only_first_text:
                yield Wanted(name, text, kind, paper)


def further_runs(experiment: Experiment, scale: Scale) -> Iterator[Wanted]:
    """The runs of an item's reasons, for the texts that the scale uses."""
    for i, (text, kind) in enumerate(list(experiment.texts.items())[: scale.texts]):
        for reason in experiment.reasons:
            if i == 0 or reason.instead.keys().isdisjoint(experiment.only_first_text):
                yield from (Wanted(name, text, kind, paper) for name, paper in reason.runs.items())


def make_plans(
    experiments: Sequence[Experiment], scale: Scale, texts: Texts, seeds: int, out: Path
) -> list[Plan]:
    """The plans of several items; their corpora are prepared, their runs not yet trained."""
    place = partial(_placed, scale=scale, texts=texts, seeds=seeds, folder=out / RUNS)
    return [
        Plan(
            experiment,
            tuple(place(list(item_runs(experiment, scale)))),
            tuple(place(list(further_runs(experiment, scale)))),
        )
        for experiment in experiments
    ]


def _placed(
    wanted: Sequence[Wanted], scale: Scale, texts: Texts, seeds: int, folder: Path
) -> Iterator[Placed]:
    cells = []
    for seed in range(seeds):
        for one in wanted:
            run = texts.place(scaled_run(one.paper, scale), one.kind)
            cells.append(Cell(f"{run.name} {one.kind}", replace(run, seed=seed)))
    trials = place_cells(cells, folder)
    for one, trial in zip([*wanted] * seeds, trials, strict=True):
        yield Placed(one.row, one.text, one.kind, trial)


def unique_trials(plans: Sequence[Plan]) -> list[Trial]:
    """The trainings of all plans, each once, in the order of the plans."""
    found: Mapping[Path, Trial] = {trial.folder: trial for plan in plans for trial in plan.trials}
    return list(found.values())
