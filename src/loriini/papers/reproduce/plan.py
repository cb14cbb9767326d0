"""An `Experiment` for each item, and its runs at a scale, each placed in a folder that all items share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from loriini.compare.trainings import Training, with_folders
from loriini.papers.published import ITEMS, PaperRun
from loriini.papers.reproduce.charts import Chart
from loriini.papers.reproduce.claim import Claim
from loriini.papers.reproduce.measured import Measured
from loriini.papers.reproduce.quantities import Values
from loriini.papers.reproduce.scales import Scale, scaled_run
from loriini.papers.reproduce.texts import KINDS, Texts

RUNS = "runs"


@dataclass(frozen=True)
class Experiment:
    """How an item is reproduced."""

    item: str
    claims: Callable[[Measured], Iterable[Claim]]
    measures: tuple[str, ...] = ()
    """Names in `measures`; what is recorded during training is always there."""
    columns: Callable[[Measured, str], Mapping[str, Values]] = lambda measured, row: {}
    """Measured quantities of a row by column: those of the published values, and others."""
    charts: Callable[[Measured], Iterable[Chart]] = lambda measured: ()
    more_runs: Mapping[str, PaperRun] = field(default_factory=dict)
    """Runs besides the item's own, which a claim compares with."""
    compute: Callable[[Scale, int], Mapping[str, Any]] | None = None
    """Computes or measures something instead of training the runs, from the scale and the number of seeds."""
    computed_as: str = ""
    """The item that has the same computation, if any: it is made once for both."""
    kind: str | None = None
    """Kind of text in place of the item's."""
    only_first_text: tuple[str, ...] = ()
    """Runs that are trained on the item's first text alone."""

    @property
    def runs(self) -> Mapping[str, PaperRun]:
        return {} if self.compute else {**ITEMS[self.item].runs, **self.more_runs}

    @property
    def texts(self) -> Mapping[str, str]:
        """Names of the training texts → kinds of text."""
        return {name: self.kind or KINDS[name] for name in ITEMS[self.item].texts}


@dataclass(frozen=True, kw_only=True)
class ItemTraining(Training):
    """A training for a row and a text of the paper, and the kind of this text.

    Rows and items may share its folder.
    """

    row: str
    text: str
    kind: str
    paper: PaperRun

    @property
    def corpus(self) -> Path:
        return self.run.corpus[0]


def item_runs(experiment: Experiment, scale: Scale) -> Iterator[ItemTraining]:
    """The runs of an item, for the texts that the scale uses; without corpora and seeds."""
    for i, (text, kind) in enumerate(islice(experiment.texts.items(), scale.texts)):
        for row, paper in experiment.runs.items():
            if not (i and row in experiment.only_first_text):
                run = scaled_run(paper, scale)
                yield ItemTraining(f"{run.name} {kind}", run, row=row, text=text, kind=kind, paper=paper)


def make_plans(
    experiments: Sequence[Experiment], scale: Scale, texts: Texts, seeds: int, out: Path
) -> dict[str, list[ItemTraining]]:
    """The trainings of each item; their corpora are prepared, they are not yet run."""
    return {
        experiment.item: with_folders(item_trainings(experiment, scale, texts, seeds), out / RUNS)
        for experiment in experiments
    }


def item_trainings(experiment: Experiment, scale: Scale, texts: Texts, seeds: int) -> Iterator[ItemTraining]:
    """An item's runs with every seed, their corpora prepared."""
    runs = [replace(t, run=texts.with_corpus(t.run, t.kind)) for t in item_runs(experiment, scale)]
    for seed in range(seeds):
        for training in runs:
            yield replace(training, run=replace(training.run, seed=seed))


def distinct_trainings(plans: Iterable[Sequence[ItemTraining]]) -> list[ItemTraining]:
    """The trainings of several items in their order, one for each folder."""
    return list({training.folder: training for training in chain.from_iterable(plans)}.values())
