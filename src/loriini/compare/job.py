"""`loriini compare`: train designs, or take existing runs; evaluate, summarise, report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.checks import as_argument
from loriini.common.errors import InputError
from loriini.common.folders import kind_of
from loriini.common.hardware import describe_machine
from loriini.common.json_file import read_object
from loriini.compare.existing import existing_trainings
from loriini.compare.grid import make_trainings
from loriini.compare.measures import evaluate_trainings
from loriini.compare.report import write_comparison
from loriini.compare.results import Results, compare_trainings
from loriini.compare.running import check_jobs, refuse_failures, threads_of, train_all
from loriini.compare.settings import CompareSettings
from loriini.compare.trainings import Training, with_folders
from loriini.data.jobs.lock import folder_lock
from loriini.data.read.inputs import input_files
from loriini.evaluate.heldout import documents_of
from loriini.evaluate.runs import ScoredModel, SharedHeldout, shared_heldout
from loriini.evaluate.settings import EvaluationSettings
from loriini.recipes import default_vocabulary, is_tiny
from loriini.reporting.page import REPORT
from loriini.train.corpora import model_config, read_corpora, small_corpus, small_corpus_folder
from loriini.train.launch import resolve_recipe

RESULTS = "results.json"


def has_small_corpus(settings: CompareSettings) -> bool:
    """True if the trainings use a small corpus of the standard library's text."""
    return not settings.corpus and is_tiny(settings.recipe)


def trainings_of(settings: CompareSettings) -> list[Training]:
    """The trainings; their runs have no corpus unless the settings name one."""
    corpus = tuple(path.resolve() for path in settings.corpus)
    base, grid = replace(resolve_recipe(settings.recipe, []), corpus=corpus), settings.grid
    return make_trainings(settings.designs, base, settings.overrides, grid, settings.seeds, settings.ladder)


def with_corpus(trainings: Sequence[Training], corpus: Path) -> list[Training]:
    """The trainings on this corpus."""
    return [replace(each, run=replace(each.run, corpus=(corpus.resolve(),))) for each in trainings]


def compare_designs(settings: CompareSettings, evaluation: EvaluationSettings, out: Path) -> Results:
    """Train what is not done in `out/runs`, evaluate all, and write results and report; returns the results.

    InputError, before anything is trained, for wrong settings or held-out text. WorkerDied if a training
    failed, after the report of the others is written.
    """
    trainings = place_designs(settings, evaluation, out)
    heldout = heldout_for(trainings, evaluation)
    failures = train_all(trainings, settings.jobs)
    machine = {**describe_machine(), "jobs": settings.jobs, "threads": threads_of(settings.jobs)}
    about = {
        "recipe": settings.recipe,
        "overrides": list(settings.overrides),
        "grid": {name: list(values) for name, values in settings.grid.items()},
        "corpus": [path.name for path in trainings[0].run.corpus],
        "machine": machine,
    }
    results = finish(trainings, heldout, failures, out, about)
    refuse_failures(trainings, failures)
    return results


def designs_to_train(settings: CompareSettings, evaluation: EvaluationSettings, out: Path) -> list[Training]:
    """The trainings in `out/runs` that are not done; InputError for wrong settings and held-out text."""
    trainings = place_designs(settings, evaluation, out)
    left = [training for training in trainings if not training.is_done]
    if left:
        heldout_for(trainings, evaluation)
    return left


def place_designs(settings: CompareSettings, evaluation: EvaluationSettings, out: Path) -> list[Training]:
    """The trainings in `out/runs`; InputError for wrong settings, and for held-out text that is missing."""
    check_jobs(settings.jobs)
    check_out(out)
    trainings = trainings_of(settings)
    input_files(evaluation.documents)
    if has_small_corpus(settings):
        length = trainings[0].run.length
        trainings = with_corpus(trainings, small_corpus(small_corpus_folder(out, length), length))
    elif not settings.corpus:
        raise InputError(
            f"recipe {settings.recipe} needs a corpus: make one with `loriini prepare`, give --corpus DIR"
        )
    return with_folders(trainings, out / "runs")


def heldout_for(trainings: Sequence[Training], evaluation: EvaluationSettings) -> SharedHeldout:
    """The held-out text of trainings on one corpus; InputError, before any is trained, for wrong text."""
    corpus = read_corpora(trainings[0].run.corpus)
    models = [
        ScoredModel(
            each.folder, model_config(each.run, corpus), corpus.tokenizer, each.run.length, each.run.corpus
        )
        for each in trainings
    ]
    return shared_heldout(models, evaluation)


def compare_runs(folders: Sequence[Path], evaluation: EvaluationSettings | None, out: Path) -> Results:
    """Compare existing runs; without held-out text, by their training alone. Returns the results.

    InputError if `out` holds a comparison with other runs, or with held-out text that is not given now.
    """
    runs = [str(path) for path in folders]
    check_out(out, runs, heldout=evaluation is not None)
    trainings = existing_trainings(folders)
    scored = [ScoredModel.from_run(each.folder) for each in trainings if each.state == "finished"]
    heldout = shared_heldout(scored, evaluation) if evaluation and scored else None
    return finish(trainings, heldout, {}, out, {"runs": runs})


def check_out(out: Path, runs: Sequence[str] = (), heldout: bool = True) -> None:
    """InputError if `out` holds another command's results, or a comparison of other runs or of more text."""
    path = out / RESULTS
    if not path.exists():
        if out.exists() and (kind := kind_of(out)):
            raise InputError(f"--out {out}: {kind}; choose another folder")
        if (out / REPORT).exists():
            raise InputError(
                f"{out / REPORT}: was not written by `loriini compare`: there is no {RESULTS}; choose "
                "another --out"
            )
        return
    before = read_object(path, "choose another --out")
    if "variants" not in before:
        raise InputError(f"{path}: was not written by `loriini compare`; choose another --out")
    others = [run for run in before.get("runs", []) if run not in runs]
    if others or ("runs" in before) != bool(runs) or (before.get("heldout") and not heldout):
        also = ", ".join(others) or ("held-out text" if "runs" in before and runs else "other trainings")
        raise InputError(f"{path}: compares {also}; name that too, or choose another --out")


def finish(
    trainings: Sequence[Training],
    heldout: SharedHeldout | None,
    failures: Mapping[Path, str],
    out: Path,
    about: Mapping[str, Any],
) -> Results:
    """Evaluate the trainings, write `results.json` and the report into `out`; returns the results."""
    results = measure_trainings(trainings, heldout, failures, out / "evaluations")
    results |= {"date": time.strftime("%Y-%m-%d"), **about}
    with folder_lock(out, wait=True):  # another command may end at the same time
        write_json(out / RESULTS, results)
        write_comparison(results, out)
    return results


def measure_trainings(
    trainings: Sequence[Training], heldout: SharedHeldout | None, failures: Mapping[Path, str], cache: Path
) -> Results:
    """The results of trainings; those that finished are evaluated on the same tokens with one `skip`."""
    finished = [training for training in trainings if training.state == "finished"]
    if not heldout or not finished:
        return {**compare_trainings(trainings, {}, failures), "heldout": {}}
    evaluation, texts = heldout
    evaluations = evaluate_trainings(finished, texts, evaluation, cache)
    text = {
        "documents": [Path(path).name for path in evaluation.documents],
        "instances": {domain: len(each.instances) for domain, each in texts.items()},
        "length": evaluation.length,
        "skip": evaluation.skip,
        "contexts": evaluation.contexts,
    }
    return {**compare_trainings(trainings, evaluations, failures, documents_of(texts)), "heldout": text}


def describe_trainings(settings: CompareSettings, out: Path) -> list[dict[str, Any]]:
    """What `--dry-run` lists: every training with its parameters, FLOPs and tokens, and its state."""
    trainings = trainings_of(settings)
    small = small_corpus_folder(out, trainings[0].run.length)
    if has_small_corpus(settings) and small.exists():
        trainings = with_corpus(trainings, small)
    if trainings[0].run.corpus:
        vocabulary = read_corpora(trainings[0].run.corpus).vocab_size
        trainings = with_folders(trainings, out / "runs")
    else:
        vocabulary = default_vocabulary(trainings[0].run, settings.recipe)
    return [describe_training(training, vocabulary) for training in trainings]


def describe_training(training: Training, vocabulary: int) -> dict[str, Any]:
    """A row of what `--dry-run` lists."""
    run = training.run
    total, active = (config := run.config(vocabulary)).parameters()
    tokens = run.steps * run.batch_size * run.length
    return {
        "training": training.variant,
        "seed": as_argument(training.seed),
        "parameters": total,
        "active": active,
        "tokens": tokens,
        "petaflop": f"{tokens * config.flops_per_token(run.length) / 1e15:.3g}",
        "state": training.state if run.corpus else "new",
    }
