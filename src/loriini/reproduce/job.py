"""`loriini reproduce`: train what items need, measure it, and write each item's results as it is done."""

import contextvars
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from loriini.atomic import is_unused, write_json
from loriini.compare.running import DONE, Trial, check_jobs, run_state, train_trials
from loriini.errors import InputError, WorkerDied
from loriini.evaluate.perplexity import HeldOut, tokenize_by_domain
from loriini.hardware import describe_machine
from loriini.jobs.lock import waiting_lock
from loriini.json_file import read_object
from loriini.model.loading import load_tokenizer
from loriini.progress import inform, warn
from loriini.reproduce.experiments.catalog import find_experiments
from loriini.reproduce.experiments.experiment import Experiment
from loriini.reproduce.measures import measure
from loriini.reproduce.plan import RUNS, Plan, make_plans, unique_trials
from loriini.reproduce.report import write_item_report, write_overview
from loriini.reproduce.results import DAMAGED, RESULTS, item_results
from loriini.reproduce.scales import Scale, find_scale
from loriini.reproduce.texts import Texts
from loriini.sources import OnError, read_documents

SETTINGS, TEXT = "reproduce.json", "text"
MOST_SEEDS = 100


@dataclass(frozen=True)
class ReproduceSettings:
    """What to reproduce. InputError for a wrong setting.

    Attributes:
        items: names in `ITEMS`, or `all`.
        scale: tiny, small or paper.
        text: documents to train on, as for `quickstart`; by default text that is on this machine.
        seeds: trainings of each run.
        jobs: trainings at once.
        on_error: `stop` at the first flawed record of `text`, or `skip` and count them.
        reasons: train the further runs of findings that do not hold, too.
    """

    items: tuple[str, ...]
    scale: str = "tiny"
    text: tuple[str, ...] = ()
    seeds: int = 3
    jobs: int = 1
    reasons: bool = False
    on_error: OnError = "stop"

    def __post_init__(self) -> None:
        find_experiments(self.items)
        find_scale(self.scale)
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise InputError(f"--seeds {self.seeds}: give at least 1 and at most {MOST_SEEDS}")
        check_jobs(self.jobs)


@dataclass
class HeldOutTexts:
    """Held-out text by kind as instances, tokenized once for each tokenizer."""

    texts: Texts
    scale: Scale
    cut: dict[tuple[str, str], dict[str, HeldOut]] = field(default_factory=dict)

    def instances(self, kind: str, tokenizer_of: str, run: Path) -> dict[str, HeldOut]:
        """A kind's text in the tokens of another kind's tokenizer, which is that of `run`."""
        if (kind, tokenizer_of) not in self.cut:
            documents = read_documents((str(self.texts.heldout(kind)),))
            self.cut[kind, tokenizer_of] = tokenize_by_domain(
                documents, load_tokenizer(run), self.scale.length, self.scale.instances
            )
        return self.cut[kind, tokenizer_of]


def reproduce_items(settings: ReproduceSettings, out: Path) -> Path:
    """Reproduce items in the folder `out`, without what is done there; the path of the overview.

    InputError before anything is trained for wrong settings and text; WorkerDied at the end if a training
    failed, or what measuring one raised, with the other items written.
    """
    plans, heldout = place_items(settings, out)
    failures = train_and_write(plans, settings, heldout, out)
    if settings.reasons:
        unexplained = [replace(plan, explained_by=rows_to_explain(out, plan)) for plan in plans]
        unexplained = [plan for plan in unexplained if plan.explained_by]
        failures |= train_and_write(unexplained, settings, heldout, out)
    with waiting_lock(out / "measures"):
        overview = write_overview(out)
    if failures:
        listed = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        raise WorkerDied(f"{len(failures)} trainings failed ({listed}); the same command tries them again")
    return overview


def place_items(settings: ReproduceSettings, out: Path) -> tuple[list[Plan], HeldOutTexts]:
    """The items with their trainings in `out`, and the text that these are measured on."""
    scale, experiments = find_scale(settings.scale), find_experiments(settings.items)
    texts = Texts(out / TEXT, scale, settings.text, settings.jobs, settings.on_error)
    claim_folder(settings, texts, out)
    inform(f"Everything goes to {out}")
    return make_plans(experiments, scale, texts, settings.seeds, out), HeldOutTexts(texts, scale)


def train_and_write(
    plans: Sequence[Plan], settings: ReproduceSettings, heldout: HeldOutTexts, out: Path
) -> dict[str, str]:
    """Train what is not done, and write every item as soon as it is; failures by training."""
    trials = unique_trials(plans)
    job = _Job(plans, settings, heldout, out)
    inform(f"Items: {len(plans)}, trainings: {len(trials)}")
    with ThreadPoolExecutor(1) as measuring:
        job.start(measuring)
        try:
            failures = train_trials(trials, settings.jobs, job.trained)
            job.finish()
        except BaseException:
            measuring.shutdown(cancel_futures=True)
            raise
    return {trial.name: failures[trial.folder] for trial in trials if trial.folder in failures}


def rows_to_explain(out: Path, plan: Plan) -> frozenset[str]:
    """The further rows of an item's reasons that are about what decided against its finding."""
    likely = read_object(out / plan.experiment.item / RESULTS, DAMAGED)["likely_reasons"]
    reasons = (reason for reason in plan.experiment.reasons if reason.name in likely)
    return frozenset(row for reason in reasons for row in reason.runs)


class _Job:
    """Measures trainings as they end, and writes items whose trainings have all ended.

    Measuring runs in a thread, while the main thread waits for the processes that train.
    """

    def __init__(
        self, plans: Sequence[Plan], settings: ReproduceSettings, heldout: HeldOutTexts, out: Path
    ) -> None:
        self.settings, self.heldout, self.out = settings, heldout, out
        self.open = list(plans)
        self.kinds: dict[Path, str] = {}
        self.names = defaultdict[Path, set[str]](set)
        for plan in plans:
            for placed in (*plan.placed, *plan.further):
                self.kinds[placed.trial.folder] = placed.kind
                self.names[placed.trial.folder] |= set(plan.experiment.measures)
        self.ended: set[Path] = set()
        self.training = True
        self.futures: list[Future[None]] = []

    def start(self, executor: ThreadPoolExecutor) -> None:
        """Measure what is trained already, and write what needs no training."""
        self.executor = executor
        for trial in unique_trials(self.open):
            if is_trained(trial):
                self.trained(trial)
        self._finish_items()

    def trained(self, trial: Trial) -> None:
        """Take a training that ended, or failed."""
        self.ended.add(trial.folder)
        if is_trained(trial):
            names = sorted(self.names[trial.folder])
            self._submit(trial.name, partial(self._measures, trial, names))
        self._finish_items()

    def finish(self) -> None:
        """Time what is timed, and write every item that can be; then raises what measuring one raised."""
        self.training = False
        self._finish_items()
        wait(self.futures)
        for future in self.futures:
            future.result()

    def _submit(self, name: str, work: Callable[[], object]) -> None:
        context = contextvars.copy_context()
        self.futures.append(self.executor.submit(context.run, warned, name, work))

    def _finish_items(self) -> None:
        done = [plan for plan in self.open if self._may_finish(plan)]
        for plan in done:
            self.open.remove(plan)
            self._submit(plan.experiment.item, partial(self._write, plan))

    def _may_finish(self, plan: Plan) -> bool:
        """Whether all trainings of an item ended, and all others where it is timed."""
        trained = all(trial.folder in self.ended for trial in plan.trials)
        return trained and not (plan.experiment.timed and self.training)

    def _measures(self, trial: Trial, names: Sequence[str]) -> dict[str, Any]:
        kind, skip = self.kinds[trial.folder], self.heldout.scale.segment_length
        of_kind = partial(self.heldout.instances, tokenizer_of=kind, run=trial.folder)
        return measure(trial, names, kind, of_kind, skip, self.out / "measures")

    def _write(self, plan: Plan) -> None:
        """Write an item's results and report, and the overview."""
        cells = [
            (
                placed,
                self._measures(placed.trial, plan.experiment.measures) if is_trained(placed.trial) else {},
            )
            for placed in (*plan.placed, *(p for p in plan.further if is_trained(p.trial)))
        ]
        own = len(plan.placed)
        settings = self.settings
        about = {
            "scale": settings.scale,
            "seeds": settings.seeds,
            "text": [Path(path).name for path in settings.text],
            # the precision is the runs', not what the machine has
            "machine": {name: value for name, value in describe_machine().items() if name != "precision"},
            "date": time.strftime("%Y-%m-%d"),
        }
        extra = self._computed(plan)
        results = item_results(self._with_amounts(plan.experiment), cells[:own], cells[own:], extra, about)
        folder = self.out / plan.experiment.item
        with waiting_lock(self.out / "measures"):
            folder.mkdir(exist_ok=True)
            write_json(folder / RESULTS, results, sort_keys=False)
            write_item_report(results, folder)
            write_overview(self.out)
        inform(f"{plan.experiment.item}: {results['sentence']}")

    def _with_amounts(self, experiment: Experiment) -> Experiment:
        """The experiment; where its text is of its own kind, how much there is of each domain is noted."""
        if experiment.kind is None:
            return experiment
        return replace(experiment, note=f"{experiment.note}; {self.heldout.texts.amounts(experiment.kind)}")

    def _computed(self, plan: Plan) -> Mapping[str, Any]:
        """What an item computes without a training, once for each number of seeds.

        With a `remark` something could not be measured, so it is tried again.
        """
        if plan.experiment.compute is None:
            return {}
        path = self.out / "measures" / plan.experiment.item / f"{self.settings.seeds}-seeds.json"
        with waiting_lock(path.parent):
            found = read_object(path, "remove it") if path.exists() else {}
            if not found or "remark" in found:
                computed = plan.experiment.compute(self.heldout.scale, self.settings.seeds)
                write_json(path, computed, sort_keys=False)
                found = read_object(path, "remove it")
        return found


def warned(name: str, work: Callable[[], object]) -> None:
    """Do the work; what it raises is said at once, since it is raised only after all trainings."""
    try:
        work()
    except Exception as error:
        warn(f"measuring {name} failed ({type(error).__name__}: {error}); the others continue")
        raise


def is_trained(trial: Trial) -> bool:
    """Whether a training ended, with a model or by diverging, so that there is something to measure."""
    return run_state(trial.folder) in DONE


def claim_folder(settings: ReproduceSettings, texts: Texts, out: Path) -> None:
    """Record in `out` the scale and text of its runs. InputError if it holds runs of others."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; choose another --out")
    scale = json.loads(json.dumps(asdict(find_scale(settings.scale))))
    path, wanted = out / SETTINGS, {"scale": scale, "text": texts.identity}
    with waiting_lock(out):
        if not path.exists():
            if not is_unused(out):
                raise InputError(f"{out}: exists and is no reproduction's folder; choose another --out")
            write_json(path, wanted)
        found = read_object(path, "choose another --out")
        changed = [name for name in wanted if found.get(name) != wanted[name]]
        if changed == ["text"] and not any((out / used).exists() for used in (RUNS, TEXT)):
            write_json(path, wanted)  # nothing has been trained or read in it
            return
    if changed:
        raise InputError(
            f"{path}: this folder was made with another {' and '.join(changed)}; choose another --out"
        )
