"""`loriini reproduce`: train what items need, measure it, and write each item's results as it is done."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from loriini.common.atomic import write_json
from loriini.common.checks import Bounds, check_fields
from loriini.common.errors import InputError
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_object
from loriini.common.options import Option
from loriini.common.progress import inform, warn
from loriini.compare.running import check_jobs, refuse_failures, train_all
from loriini.data.jobs.lock import claim_folder, folder_lock
from loriini.data.read.records import OnError
from loriini.evaluate.heldout import check_lengths
from loriini.papers.reproduce.experiments.catalog import find_experiments
from loriini.papers.reproduce.measured import Measures
from loriini.papers.reproduce.measures import LOSS_MEASURES, measure, parts_of
from loriini.papers.reproduce.plan import RUNS, Experiment, ItemTraining, Plan, make_plans, unique_trials
from loriini.papers.reproduce.report import item_line, write_item_report, write_overview
from loriini.papers.reproduce.results import RESULTS, item_results
from loriini.papers.reproduce.scales import Scale, find_scale
from loriini.papers.reproduce.texts import Texts

SETTINGS, TEXT = "reproduce.json", "text"
"""What a folder's runs are made with, and the folder of their text."""


@dataclass(frozen=True)
class ReproduceSettings:
    """What to reproduce. InputError for a wrong setting."""

    items: Annotated[tuple[str, ...], Option("ITEM", positional=True)] = ()
    """Figures and tables, as `--list` names them, or all."""
    scale: str = "tiny"
    """tiny, small or paper."""
    text: tuple[str, ...] = ()
    """Documents to train on, as for `loriini quickstart --documents` (text found on this machine)."""
    seeds: Annotated[int, Bounds(least=1, most=100)] = 3
    """Trainings of each run."""
    jobs: int = 1
    """Trainings at once, which share the cores."""
    on_error: OnError = "stop"
    """What to do with a flawed record of `--text`."""

    def __post_init__(self) -> None:
        find_experiments(self.items)
        find_scale(self.scale)
        check_fields(self, dashed=True)
        check_jobs(self.jobs)
        if self.items and self.scale == "paper" and not self.text:
            raise InputError("--scale paper needs --text: these models need more than the text of a machine")


def reproduce_items(settings: ReproduceSettings, out: Path) -> Path:
    """Reproduce items in the folder `out`, one after another; what is done stays. The overview's path.

    InputError before anything is trained for wrong settings and text. At the end, with the other items
    written: WorkerDied if a training failed, or what measuring an item raised.
    """
    plans, texts = place_items(settings, out)
    writer = ItemWriter(texts, settings.seeds, out)
    failures: dict[Path, str] = {}
    errors = []
    for plan in plans:
        if plan.trainings:
            failures |= train_all(unique_trials([plan]), settings.jobs)
        try:
            writer.write(plan)
        except Exception as error:
            item = plan.experiment.item
            warn(f"measuring {item} failed ({type(error).__name__}: {error}); the others continue")
            errors.append(error)
    with folder_lock(writer.measures, wait=True):
        overview = write_overview(out)
    refuse_failures(unique_trials(plans), failures)
    if errors:
        raise errors[0]
    return overview


def place_items(settings: ReproduceSettings, out: Path) -> tuple[list[Plan], Texts]:
    """The items with their trainings in `out`, and the text of these."""
    scale, experiments = find_scale(settings.scale), find_experiments(settings.items)
    texts = Texts(out / TEXT, scale, settings.text, settings.jobs, settings.on_error)
    claim(scale, texts, out)
    inform(f"Everything goes to {out}")
    plans = make_plans(experiments, scale, texts, settings.seeds, out)
    check_heldout(plans, texts)
    return plans, texts


def check_heldout(plans: Sequence[Plan], texts: Texts) -> None:
    """InputError, before anything is trained, for a domain too short to measure the loss of items on it."""
    trainings = (
        training
        for plan in plans
        if any(parts_of(name)[0] in LOSS_MEASURES for name in plan.experiment.measures)
        for training in plan.trainings
    )
    for kind, corpus in {training.kind: training.corpus for training in trainings}.items():
        heldout = texts.instances(kind, kind, corpus)
        check_lengths(heldout, texts.scale.segment_length, remedy="give other files by --text")


def claim(scale: Scale, texts: Texts, out: Path) -> None:
    """Record in the folder `out` the scale and text of its runs; see `claim_folder`."""
    settings = {"scale": asdict(scale), "text": texts.identity}
    with folder_lock(out, wait=True):
        begun = any((out / used).exists() for used in (RUNS, TEXT))
        claim_folder(out / SETTINGS, settings, begun, "loriini reproduce")


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
        measured = [
            (training, self.measure(training, experiment.measures) if training.trial.is_done else {})
            for training in plan.trainings
        ]
        about = {
            "scale": self.texts.scale.name,
            "seeds": self.seeds,
            "text": [Path(path).name for path in self.texts.source],
            "machine": {k: v for k, v in describe_machine().items() if k != "precision"},  # runs decide
            "date": time.strftime("%Y-%m-%d"),
        }
        results = item_results(experiment, measured, self.compute(experiment), about)
        with folder_lock(self.measures, wait=True):
            folder.mkdir(exist_ok=True)
            write_json(folder / RESULTS, results, sort_keys=False)
            write_item_report(results, folder)
            write_overview(self.out)
        name, _, verdict, decided_by = item_line(results)
        inform(f"{name} {verdict}: {decided_by}")

    def compute(self, experiment: Experiment) -> Mapping[str, Any]:
        """What an item computes without a training, once for each number of seeds.

        Items of the same computation share it.
        """
        if experiment.compute is None:
            return {}
        path = self.measures / (experiment.computed_as or experiment.item) / f"{self.seeds}-seeds.json"
        with folder_lock(path.parent, wait=True):
            if not path.exists():
                write_json(path, experiment.compute(self.texts.scale, self.seeds), sort_keys=False)
            return read_object(path, "remove it")
