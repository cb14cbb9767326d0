"""The runs that items need at a scale, each placed in a folder that all items share."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from loriini.compare.trainings import Training, place
from loriini.papers.published.items import PaperRun
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
    own: tuple[ItemTraining, ...]
    further: tuple[ItemTraining, ...] = ()
    """Those of its reasons."""
    training_now: frozenset[str] = frozenset()
    """The rows of these that are trained now; others may have been before."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The texts that are not trained on: their name → that of the earlier text with their domains."""

    @property
    def trials(self) -> list[Training]:
        """What is trained, each once: rows may share a trial."""
        wanted = (*self.own, *(training for training in self.further if training.row in self.training_now))
        return list({training.trial.folder: training.trial for training in wanted}.values())


def item_runs(experiment: Experiment, scale: Scale, left_out: Collection[str] = ()) -> Iterator[ItemRun]:
    """The runs of an item, for the texts that the scale uses without some."""
    for text, kind, without in used_texts(experiment, scale, left_out):
        for row, paper in experiment.runs.items():
            if row not in without:
                yield ItemRun(row, text, kind, paper)


def further_runs(experiment: Experiment, scale: Scale, left_out: Collection[str] = ()) -> Iterator[ItemRun]:
    """The runs of an item's reasons, for the texts that the scale uses without some."""
    for text, kind, without in used_texts(experiment, scale, left_out):
        for reason in experiment.reasons:
            if reason.instead.keys().isdisjoint(without):
                yield from (ItemRun(row, text, kind, paper) for row, paper in reason.runs.items())


def used_texts(
    experiment: Experiment, scale: Scale, left_out: Collection[str] = ()
) -> Iterator[tuple[str, str, Collection[str]]]:
    """The texts that the scale uses, with their kinds and the rows that are not trained on them."""
    for i, (text, kind) in enumerate(islice(experiment.texts.items(), scale.texts)):
        if text not in left_out:
            yield text, kind, experiment.only_first_text if i else ()


def same_texts(experiment: Experiment, texts: Texts) -> dict[str, str]:
    """The texts of an item that stand in for no other text than an earlier one: their name → that one's.

    They have the same domains.
    """
    used = [(text, kind) for text, kind, _ in used_texts(experiment, texts.scale)] if experiment.runs else []
    domains = {text: texts.corpus_domains(kind) for text, kind in used} if len(used) > 1 else {}
    firsts = {of_text: text for text, of_text in reversed(domains.items())}
    return {text: firsts[of_text] for text, of_text in domains.items() if firsts[of_text] != text}


def make_plans(
    experiments: Sequence[Experiment], scale: Scale, texts: Texts, seeds: int, out: Path
) -> list[Plan]:
    """The plans of several items; their corpora are prepared, their runs not yet trained."""
    place = partial(_place, scale=scale, texts=texts, seeds=seeds, folder=out / RUNS)
    plans = []
    for experiment in experiments:
        same = same_texts(experiment, texts)
        own, further = (place(of(experiment, scale, same)) for of in (item_runs, further_runs))
        plans.append(Plan(experiment, own, further, left_out=same))
    return plans


def _place(
    runs: Iterable[ItemRun], scale: Scale, texts: Texts, seeds: int, folder: Path
) -> tuple[ItemTraining, ...]:
    """The trainings of some runs, seed after seed."""
    placed = [(wanted, texts.place(scaled_run(wanted.paper, scale), wanted.kind)) for wanted in runs]
    seeded = [(wanted, replace(run, seed=seed)) for seed in range(seeds) for wanted, run in placed]
    trials = place((Training(f"{run.name} {wanted.kind}", run) for wanted, run in seeded), folder)
    return tuple(
        ItemTraining(wanted.row, wanted.text, wanted.kind, trial)
        for (wanted, _), trial in zip(seeded, trials, strict=True)
    )


def unique_trials(plans: Sequence[Plan]) -> list[Training]:
    """The trainings of all plans, each once, in the order of the plans."""
    found: Mapping[Path, Training] = {trial.folder: trial for plan in plans for trial in plan.trials}
    return list(found.values())
