"""The runs that items need at a scale, each placed in a folder that all items share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loriini.compare.cells import Cell
from loriini.compare.running import Trial, place_cells
from loriini.published.items import PaperRun
from loriini.reproduce.rows import Row
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

    row: Row
    placed: tuple[Placed, ...]

    @property
    def trials(self) -> list[Trial]:
        """The trainings, each once: rows may share them."""
        return list({placed.trial.folder: placed.trial for placed in self.placed}.values())


def item_runs(row: Row, scale: Scale) -> Iterator[tuple[str, str, str, PaperRun]]:
    """(row, text, kind of text, run) of an item, for the texts that the scale uses."""
    texts = list(row.texts.items())
    for i, (text, kind) in enumerate(texts[: scale.texts]):
        for name, paper in row.runs.items():
            if i == 0 or name not in row.only_first_text:
                yield name, text, kind, replace(paper, evaluate=())


def make_plans(rows: Sequence[Row], scale: Scale, texts: Texts, seeds: int, out: Path) -> list[Plan]:
    """The plans of several items; their corpora are prepared, their runs not yet trained."""
    return [Plan(row, tuple(_placed(row, scale, texts, seeds, out / RUNS))) for row in rows]


def _placed(row: Row, scale: Scale, texts: Texts, seeds: int, folder: Path) -> Iterator[Placed]:
    wanted = list(item_runs(row, scale))
    cells = []
    for seed in range(seeds):
        for _, _, kind, paper in wanted:
            run = texts.place(scaled_run(paper, scale), kind)
            cells.append(Cell(f"{run.name} {kind}", replace(run, seed=seed)))
    trials = place_cells(cells, folder)
    for (name, text, kind, _), trial in zip(wanted * seeds, trials, strict=True):
        yield Placed(name, text, kind, trial)


def unique_trials(plans: Sequence[Plan]) -> list[Trial]:
    """The trainings of all plans, each once, in the order of the plans."""
    found: Mapping[Path, Trial] = {trial.folder: trial for plan in plans for trial in plan.trials}
    return list(found.values())
