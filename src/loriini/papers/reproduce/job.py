"""`loriini reproduce`: train what items need, measure it, and write each item's results as it is done."""

import contextvars
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from loriini.common.atomic import write_json
from loriini.common.checks import Bounds, check_fields
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_object
from loriini.common.options import Option
from loriini.common.progress import inform, warn
from loriini.compare.running import check_jobs, refuse_failures, train_all
from loriini.compare.trainings import Training
from loriini.data.jobs.lock import claim_folder, waiting_lock
from loriini.data.read import OnError
from loriini.evaluate.heldout import check_lengths
from loriini.papers.reproduce.experiments.catalog import find_experiments
from loriini.papers.reproduce.experiments.experiment import Experiment
from loriini.papers.reproduce.measured import Measures
from loriini.papers.reproduce.measures import is_of_loss, measure
from loriini.papers.reproduce.plan import RUNS, ItemTraining, Plan, make_plans, unique_trials
from loriini.papers.reproduce.report import item_line, write_item_report, write_overview
from loriini.papers.reproduce.results import RESULTS, item_results
from loriini.papers.reproduce.scales import Scale, find_scale
from loriini.papers.reproduce.texts import Texts

SETTINGS, TEXT = "reproduce.json", "text"
MORE_TEXT = "give more held-out text of it by --text, or leave its files out, and another --out"
"""The remedy for a domain with too little held-out text; a folder keeps its text."""


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


def reproduce_items(settings: ReproduceSettings, out: Path) -> Path:
    """Reproduce items in the folder `out`, without what is done there; the path of the overview.

    InputError before anything is trained for wrong settings and text; WorkerDied at the end if a training
    failed, or what measuring one raised, with the other items written.
    """
    plans, texts = place_items(settings, out)
    writer = ItemWriter(texts, settings.seeds, out)
    failures = train_and_write(plans, writer, settings.jobs)
    overview = writer.overview()
    refuse_failures(unique_trials(plans), failures)
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
    of_loss = (plan for plan in plans if any(map(is_of_loss, plan.experiment.measures)))
    trainings = (training for plan in of_loss for training in plan.trainings)
    for kind, corpus in {training.kind: training.corpus for training in trainings}.items():
        check_lengths(texts.instances(kind, kind, corpus), texts.scale.segment_length, more=MORE_TEXT)


def claim(scale: Scale, texts: Texts, out: Path) -> None:
    """Record in the folder `out` the scale and text of its runs; see `claim_folder`."""
    settings = {"scale": asdict(scale), "text": texts.identity}
    with waiting_lock(out):
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
        with waiting_lock(self.measures):
            folder.mkdir(exist_ok=True)
            write_json(folder / RESULTS, results, sort_keys=False)
            write_item_report(results, folder)
            write_overview(self.out)
        name, _, verdict, decided_by = item_line(results)
        inform(f"{name} {verdict}: {decided_by}")

    def overview(self) -> Path:
        """Write the overview of all items in the folder."""
        with waiting_lock(self.measures):
            return write_overview(self.out)

    def compute(self, experiment: Experiment) -> Mapping[str, Any]:
        """What an item computes without a training, once for each number of seeds.

        Items of the same computation share it.
        """
        if experiment.compute is None:
            return {}
        path = self.measures / (experiment.computed_as or experiment.item) / f"{self.seeds}-seeds.json"
        with waiting_lock(path.parent):
            if not path.exists():
                write_json(path, experiment.compute(self.texts.scale, self.seeds), sort_keys=False)
            return read_object(path, "remove it")


def train_and_write(plans: Sequence[Plan], writer: ItemWriter, jobs: int) -> dict[Path, str]:
    """Train what is not done, `jobs` at once, and write every item as soon as it is; failures by folder."""
    trials = unique_trials(plans)
    inform(f"Items: {len(plans)}, trainings: {len(trials)}")
    with ThreadPoolExecutor(1) as measuring:
        job = _Job(plans, writer, measuring)
        try:
            job.start()
            failures = train_all(trials, jobs, job.trained) if trials else {}
            job.finish()
        except BaseException:
            measuring.shutdown(cancel_futures=True)
            raise
    return failures


class _Job:
    """Measures trainings as they end, and writes items whose trainings have all ended.

    While the main thread waits for the processes that train, this is done in another one. What is timed comes
    after that in the main thread, where it can be interrupted.
    """

    def __init__(self, plans: Sequence[Plan], writer: ItemWriter, executor: ThreadPoolExecutor) -> None:
        self.open, self.writer, self.executor = list(plans), writer, executor
        self.trainings: dict[Path, ItemTraining] = {}
        self.names = defaultdict[Path, set[str]](set)
        for plan in plans:
            for training in plan.trainings:
                self.trainings[training.trial.folder] = training
                self.names[training.trial.folder] |= set(plan.experiment.measures)
        self.ended: set[Path] = set()
        self.training = True
        self.errors: list[Exception] = []

    def start(self) -> None:
        """Measure what is trained already, and write what needs no training."""
        for trial in unique_trials(self.open):
            if trial.is_done:
                self.trained(trial)
        self._finish_items()

    def trained(self, trial: Training) -> None:
        """Take a training that ended, or failed."""
        self.ended.add(trial.folder)
        if trial.is_done:
            names = sorted(self.names[trial.folder])
            self._do(trial.name, partial(self.writer.measure, self.trainings[trial.folder], names))
        self._finish_items()

    def finish(self) -> None:
        """Compute what remains, and write every item that can be; then raises what measuring one raised."""
        self.executor.shutdown()
        self.training = False
        self._finish_items()
        if self.errors:
            raise self.errors[0]

    def _do(self, name: str, work: Callable[[], object]) -> None:
        """Do the work; an error is reported at once, since it is raised only after all trainings."""

        def attempt() -> None:
            try:
                work()
            except Exception as error:
                warn(f"measuring {name} failed ({type(error).__name__}: {error}); the others continue")
                self.errors.append(error)

        if self.training:
            self.executor.submit(contextvars.copy_context().run, attempt)
        else:
            attempt()

    def _finish_items(self) -> None:
        done = [plan for plan in self.open if self._may_finish(plan)]
        for plan in done:
            self.open.remove(plan)
            self._do(plan.experiment.item, partial(self.writer.write, plan))

    def _may_finish(self, plan: Plan) -> bool:
        """Whether all trainings of an item ended, and all others where something else is computed."""
        trained = all(trial.folder in self.ended for trial in plan.trials)
        return trained and not (plan.experiment.compute and self.training)
