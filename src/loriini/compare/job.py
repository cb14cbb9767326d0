"""`loriini compare`: train the cells, or take existing runs; evaluate, summarise, report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.checks import as_argument
from loriini.common.errors import InputError
from loriini.common.hardware import describe_machine
from loriini.common.hub import kind_of
from loriini.common.json_file import read_object
from loriini.compare.cells import Cell, base_run, make_cells
from loriini.compare.existing import existing_trials
from loriini.compare.measures import evaluate_trials
from loriini.compare.report import write_comparison
from loriini.compare.results import Results, compare_trials
from loriini.compare.running import (
    Trial,
    check_jobs,
    place_cells,
    refuse_failures,
    threads_of,
    train_trials,
)
from loriini.compare.settings import CompareSettings
from loriini.data.jobs.lock import waiting_lock
from loriini.data.prepare.overlap import warn_of_overlap
from loriini.data.read.inputs import input_files
from loriini.evaluate.heldout import check_domains, check_lengths, documents_of, tokenize_by_domain
from loriini.evaluate.runs import document_counts, read_heldout, shared_heldout, warn_of_few_documents
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.weights.loading import tokenizer_in
from loriini.recipes import default_vocabulary, is_tiny
from loriini.reporting.page import REPORT
from loriini.train.corpora import SMALL_VOCABULARY, read_corpora, small_corpus, small_corpus_folder

RESULTS = "results.json"


def has_small_corpus(settings: CompareSettings) -> bool:
    """Whether the cells train on the standard library's text."""
    return not settings.corpus and (settings.recipe == "tiny" or is_tiny(settings.recipe))


def cells_of(settings: CompareSettings) -> list[Cell]:
    """The cells; the corpus is empty if they are to train on the standard library's text."""
    corpus = tuple(path.resolve() for path in settings.corpus)
    base, grid = replace(base_run(settings.recipe), corpus=corpus), settings.grid
    return make_cells(settings.designs, base, settings.overrides, grid, settings.seeds, settings.ladder)


def compare_designs(settings: CompareSettings, evaluation: EvaluationSettings, out: Path) -> Path:
    """Train the cells that are not done in `out/runs`, evaluate all, write results; the report's path.

    InputError before anything is trained for wrong settings and held-out text; WorkerDied at the end if a
    cell failed, with the report of the others written.
    """
    trials, evaluation = place_designs(settings, evaluation, out)
    failures = train_trials(trials, settings.jobs)
    machine = {**describe_machine(), "jobs": settings.jobs, "threads": threads_of(settings.jobs)}
    about = {
        "recipe": settings.recipe,
        "overrides": list(settings.overrides),
        "grid": {name: list(values) for name, values in settings.grid.items()},
        "corpus": [path.name for path in trials[0].cell.run.corpus],
        "machine": machine,
    }
    report = finish(trials, evaluation, failures, out, about)
    refuse_failures(trials, failures)
    return report


def place_designs(
    settings: CompareSettings, evaluation: EvaluationSettings, out: Path
) -> tuple[list[Trial], EvaluationSettings]:
    """The cells in `out/runs`, and how all of them are evaluated; InputError for wrong settings and text."""
    check_jobs(settings.jobs)
    if "runs" in results_before(out):
        raise InputError(f"{out / RESULTS}: compares runs, not designs; choose another --out")
    cells = cells_of(settings)
    evaluation = with_shared_skip(cells, evaluation)
    input_files(evaluation.documents)  # InputError for a missing path
    if has_small_corpus(settings):
        length = cells[0].run.length
        corpus = small_corpus(small_corpus_folder(out, length), length).resolve()
        cells = [replace(cell, run=replace(cell.run, corpus=(corpus,))) for cell in cells]
    elif not settings.corpus:
        raise InputError(
            f"recipe {settings.recipe} needs a corpus: make one with `loriini prepare`, give --corpus DIR"
        )
    trials = place_cells(cells, out / "runs")
    check_heldout([trial.cell for trial in trials if trial.state != "finished"], evaluation)
    return trials, evaluation


def compare_runs(folders: Sequence[Path], evaluation: EvaluationSettings | None, out: Path) -> Path:
    """Compare existing runs; without held-out text, by their training alone. Returns the report's path.

    InputError where `out` holds a comparison with more in it.
    """
    runs = [str(path) for path in folders]
    refuse_less(out, runs, heldout=evaluation is not None)
    return finish(existing_trials(folders), evaluation, {}, out, {"runs": runs})


def results_before(out: Path) -> dict[str, Any]:
    """The comparison in a folder, empty where there is none. InputError for another command's results."""
    path = out / RESULTS
    if path.exists():
        before = read_object(path, "choose another --out")
        if "variants" not in before:
            raise InputError(f"{path}: of another command; choose another --out")
        return before
    if out.exists() and (kind := kind_of(out)):
        raise InputError(f"--out {out}: {kind}; choose another folder")
    if (out / REPORT).exists():
        raise InputError(f"{out / REPORT}: of another command, which has no {RESULTS}; choose another --out")
    return {}


def refuse_less(out: Path, runs: Sequence[str], heldout: bool) -> None:
    """InputError where these results would replace others that say more: other runs, or held-out text."""
    if not (before := results_before(out)):
        return
    path = out / RESULTS
    if "runs" not in before:
        raise InputError(f"{path}: compares designs; choose another --out")
    if others := [run for run in before["runs"] if run not in runs]:
        raise InputError(f"{path}: also compares {', '.join(others)}; name them too, or choose another --out")
    if before.get("heldout") and not heldout:
        raise InputError(f"{path}: compares on held-out text; give --heldout, or choose another --out")


def finish(
    trials: Sequence[Trial],
    evaluation: EvaluationSettings | None,
    failures: Mapping[Path, str],
    out: Path,
    about: Mapping[str, Any],
) -> Path:
    """Evaluate the trials, write `results.json` and `report.html` into `out`; the report's path."""
    results = measure_trials(trials, evaluation, failures, out / "evaluations")
    results |= {"date": time.strftime("%Y-%m-%d"), **about}
    with waiting_lock(out):  # another command may end at the same time
        write_json(out / RESULTS, results)
        return write_comparison(results, out)


def measure_trials(
    trials: Sequence[Trial],
    evaluation: EvaluationSettings | None,
    failures: Mapping[Path, str],
    cache: Path,
) -> Results:
    """The results of trials that are trained, all evaluated on the same tokens with one `skip`."""
    finished = [trial for trial in trials if trial.state == "finished"]
    if not evaluation or not finished:
        return {**compare_trials(trials, {}, failures), "heldout": {}}
    evaluation, heldout = shared_heldout([trial.folder for trial in finished], evaluation)
    if len(finished) > 1:
        warn_of_few_documents(heldout)
    evaluations = evaluate_trials(finished, heldout, evaluation, cache)
    text = {
        "documents": [Path(path).name for path in evaluation.documents],
        "instances": {domain: len(each.ids) for domain, each in heldout.items()},
        "begin_in": document_counts(heldout),
        "length": evaluation.length,
        "skip": evaluation.skip,
        **({"document_mask": True} if evaluation.document_mask else {}),
    }
    return {**compare_trials(trials, evaluations, failures, documents_of(heldout)), "heldout": text}


def with_shared_skip(cells: Sequence[Cell], evaluation: EvaluationSettings) -> EvaluationSettings:
    """The settings with the length and `skip` of all cells, those that may fail included."""
    skip = max(cell.run.config().first_segment_length for cell in cells)
    length = min(cell.run.length for cell in cells)
    return replace(
        evaluation,
        skip=skip if evaluation.skip is None else evaluation.skip,
        length=evaluation.length or length,
    )


def check_heldout(cells: Sequence[Cell], evaluation: EvaluationSettings) -> None:
    """InputError, before these cells are trained, for held-out text that cannot be used."""
    documents = read_heldout(evaluation) if cells else []
    # the first instance says how long all are, but not how long the documents are that are kept apart
    most = evaluation.instances if evaluation.document_mask else 1
    assert evaluation.length is not None
    assert evaluation.skip is not None
    for corpora in {cell.run.corpus for cell in cells}:
        corpus = read_corpora(corpora)
        tokenizer = tokenizer_in(corpus.tokenizer)
        labels = {cell.run.label_names(corpus.instances) for cell in cells if cell.run.corpus == corpora}
        for names in labels:
            texts = tokenize_by_domain(documents, tokenizer, evaluation.length, most, names or None)
            check_domains(texts)
            check_lengths(texts, evaluation.skip, evaluation.length, document_mask=evaluation.document_mask)
        warn_of_overlap(corpora, documents)


def describe_cells(settings: CompareSettings, out: Path) -> list[dict[str, Any]]:
    """What `--dry-run` lists: every cell with its parameters, training FLOPs and tokens, and its state."""
    cells, states = cells_of(settings), dict[int, str]()
    small = small_corpus_folder(out, cells[0].run.length)
    if has_small_corpus(settings) and small.exists():
        cells = [replace(cell, run=replace(cell.run, corpus=(small.resolve(),))) for cell in cells]
    if cells[0].run.corpus:
        vocabulary = read_corpora(cells[0].run.corpus).vocab_size
        states = {i: trial.state for i, trial in enumerate(place_cells(cells, out / "runs"))}
    elif has_small_corpus(settings):
        vocabulary = SMALL_VOCABULARY
    else:
        vocabulary = default_vocabulary(cells[0].run)
    return [_described(cell, vocabulary, states.get(i, "new")) for i, cell in enumerate(cells)]


def _described(cell: Cell, vocabulary: int, state: str) -> dict[str, Any]:
    run = cell.run
    total, active = (config := run.config(vocabulary)).parameters()
    tokens = run.steps * run.batch_size * run.length
    return {
        "cell": cell.variant,
        "seed": as_argument(cell.seed),
        "parameters": total,
        "active": active,
        "tokens": tokens,
        "petaflop": f"{tokens * config.flops_per_token(run.length) / 1e15:.3g}",
        "state": state,
    }
