"""`loriini reproduce`: train what items need, measure it, and write each item's results as it is done."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_or_make
from loriini.common.progress import inform, warn
from loriini.compare.running import refuse_failures, train_all
from loriini.data.jobs.lock import claim_folder, folder_lock
from loriini.evaluate.heldout import check_lengths
from loriini.papers.reproduce.experiments.catalog import EXPERIMENTS, find_experiments
from loriini.papers.reproduce.measures import measure_all
from loriini.papers.reproduce.plan import RUNS, Experiment, ItemTraining, distinct_trainings, make_plans
from loriini.papers.reproduce.report import item_line, write_item_report, write_overview
from loriini.papers.reproduce.results import RESULTS, item_results
from loriini.papers.reproduce.scales import Scale, find_scale
from loriini.papers.reproduce.settings import ReproduceSettings
from loriini.papers.reproduce.texts import Texts
from loriini.reporting.page import REPORT

SETTINGS = "reproduce.json"
"""File with the scale and the text of a folder's runs."""
TEXT = "text"
"""Folder of the runs' text."""
KEPT = "measures"
"""Folder of cached measures; its lock also guards reports."""


def reproduce_items(settings: ReproduceSettings, out: Path) -> Path:
    """Reproduce items in folder `out`, one after another; what is done stays. Returns the overview's path.

    InputError, before anything is trained, for wrong settings or text. After all other items are written,
    raises WorkerDied if a training failed, or the first error that measuring an item raised.
    """
    plans, texts = place_items(settings, out)
    failures: dict[Path, str] = {}
    errors = []
    for item, trainings in plans.items():
        if trainings:
            failures |= train_all(distinct_trainings([trainings]), settings.jobs)
        try:
            write_item(item, trainings, texts, settings.seeds, out)
        except Exception as error:
            warn(f"measuring {item} failed ({type(error).__name__}: {error}); the others continue")
            errors.append(error)
    refuse_failures(distinct_trainings(plans.values()), failures)
    if errors:
        raise errors[0]
    return out / REPORT


def place_items(settings: ReproduceSettings, out: Path) -> tuple[Mapping[str, Sequence[ItemTraining]], Texts]:
    """The trainings of every item in `out`, and the text that these are trained on."""
    scale, experiments = find_scale(settings.scale), find_experiments(settings.items)
    texts = Texts(out / TEXT, scale, settings.text, settings.jobs, settings.on_error)
    record_settings(scale, texts, out)
    inform(f"Everything goes to {out}")
    plans = make_plans(experiments, scale, texts, settings.seeds, out)
    with_loss = [each.item for each in experiments if "heldout" in each.measures]
    check_heldout([training for item in with_loss for training in plans[item]], texts)
    return plans, texts


def check_heldout(trainings: Sequence[ItemTraining], texts: Texts) -> None:
    """InputError, before anything is trained, for a domain too short to measure losses on it."""
    for kind, corpus in {training.kind: training.corpus for training in trainings}.items():
        heldout = texts.instances(kind, corpus)
        check_lengths(heldout, texts.scale.segment_length, remedy="give other files by --text")


def record_settings(scale: Scale, texts: Texts, out: Path) -> None:
    """Record in the folder `out` the scale and text of its runs; see `claim_folder`."""
    settings = {"scale": asdict(scale), "text": texts.identity}
    with folder_lock(out, wait=True):
        begun = any((out / used).exists() for used in (RUNS, TEXT))
        claim_folder(out / SETTINGS, settings, begun, "loriini reproduce")


def write_item(item: str, trainings: Sequence[ItemTraining], texts: Texts, seeds: int, out: Path) -> None:
    """Measure an item's trainings, write its results and report into the folder `out`, and the overview."""
    experiment, folder, measures = EXPERIMENTS[item], out / item, out / KEPT
    measured = measure_all(trainings, experiment.measures, texts, measures)
    about = {
        "scale": texts.scale.name,
        "seeds": seeds,
        "text": [Path(path).name for path in texts.source],
        "machine": {k: v for k, v in describe_machine().items() if k != "precision"},  # runs decide
        "date": time.strftime("%Y-%m-%d"),
    }
    computed = compute(experiment, texts.scale, seeds, measures)
    results = item_results(experiment, measured, computed, about)
    with folder_lock(measures, wait=True):
        folder.mkdir(exist_ok=True)
        write_json(folder / RESULTS, results, sort_keys=False)
        write_item_report(results, folder)
        write_overview(out)
    name, _, verdict, decided_by = item_line(results)
    inform(f"{name} {verdict}: {decided_by}")


def compute(experiment: Experiment, scale: Scale, seeds: int, folder: Path) -> Mapping[str, Any]:
    """What an item computes without a training, once for each number of seeds.

    Items with the same computation (`computed_as`) share it.
    """
    if experiment.compute is None:
        return {}
    path = folder / (experiment.computed_as or experiment.item) / f"{seeds}-seeds.json"
    with folder_lock(path.parent, wait=True):
        return read_or_make(path, experiment.compute, scale, seeds, sort_keys=False)
