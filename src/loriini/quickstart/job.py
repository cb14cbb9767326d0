"""The stages of `loriini quickstart`: documents, a corpus, two trainings, and a comparison of them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF
from typing import Any

from loriini.analyze.report import measure_routes
from loriini.analyze.routes import ROUTES
from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine, peak_resident
from loriini.common.json_file import read_object, read_or_make
from loriini.common.progress import announce, inform
from loriini.compare.job import heldout_for, measure_trainings
from loriini.compare.running import available_cores, refuse_failures, threads_of, train_all
from loriini.compare.trainings import Training
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.inspection import neighbor_examples
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.text.documents import parse_line, write_lines
from loriini.data.read.document import Document
from loriini.data.read.inputs import input_identity
from loriini.data.read.local_text import collect_local_text
from loriini.data.read.names import HELDOUT, TRAIN
from loriini.data.read.records import Fields, ReadOptions
from loriini.data.read.split import split_documents
from loriini.evaluate.samples import continue_text
from loriini.evaluate.settings import EvaluationSettings, Generation
from loriini.model.weights.loading import load_model
from loriini.quickstart.report import Finished, write_report
from loriini.quickstart.settings import DENSE, QuickstartSettings, documents_file
from loriini.train.guard import skips_error
from loriini.train.records.metrics import METRICS, last_record, read_records

TRAIN_CHARACTERS, HELDOUT_CHARACTERS = 40_000_000, 2_000_000
HELDOUT_INSTANCES = 160
"""The most instances of each domain that are evaluated: about 80,000 tokens."""
PROMPT_CHARACTERS, SAMPLE_TOKENS = 200, 64
RESULTS, STAGES, SAMPLES = "results.json", "stages.json", "samples.json"
GATHER, PREPARE, MEASURE = "gather documents", "prepare corpus", "evaluate and analyze"
PROCESSES = (RUSAGE_SELF, RUSAGE_CHILDREN)

Sizes = dict[str, dict[str, int]]
"""By domain, `documents` and `characters`."""


def run_quickstart(settings: QuickstartSettings, out: Path) -> Finished:
    """Run the whole job in the folder `out`, except stages that are finished there, and write its report.

    InputError for wrong documents, if `out` holds something else, and while another process works there.
    """
    identity = input_identity(settings.documents)  # before anything is written
    with folder_lock(out):
        settings.claim(out, identity)
        inform(f"Everything goes to {out}")
        return _run_stages(settings, identity, out)


def _run_stages(settings: QuickstartSettings, identity: Mapping[str, str], out: Path) -> Finished:
    train = f"train {' and '.join(settings.runs)}"
    stage = Stages(out, (GATHER, PREPARE, train, MEASURE), finished=(out / RESULTS).exists())
    with stage(GATHER):
        documents = gather(settings, out)
    with stage(PREPARE):
        corpus = prepare_documents(
            out / "corpus", lambda drop: read_side(out, TRAIN), identity, settings.prepare_settings()
        )
    folder = (corpus.folder.resolve(),)
    trainings = [
        Training(name, replace(run, corpus=folder), out / "runs" / name)
        for name, run in settings.runs.items()
    ]
    text, contexts = (str(documents_file(out, HELDOUT)),), settings.contexts
    evaluation = EvaluationSettings(text, contexts=contexts, instances=HELDOUT_INSTANCES)
    heldout = heldout_for(trainings, evaluation)
    # both at once if there is a core for each
    jobs = min(len(trainings), available_cores())
    with stage(train):
        refuse_failures(trainings, train_all(trainings, jobs))
        refuse_diverged(trainings)
    with stage(MEASURE):
        found = measure_trainings(trainings, heldout, {}, out / "evaluations")
        mixture = trainings[-1].folder
        if not (mixture / ROUTES).exists():
            measure_routes(mixture, evaluation).save(mixture / ROUTES)
        runs = [training.folder for training in trainings]
        samples = read_or_make(out / SAMPLES, make_samples, out, runs)["samples"]
    found |= {"machine": {**describe_machine(), "jobs": jobs, "threads": threads_of(jobs)}}
    results = quickstart_results(found, corpus, stage.costs())
    write_json(out / RESULTS, results)
    neighbors = neighbor_examples(corpus)
    job = Finished(settings, out, results, found, documents, samples, neighbors, stage.costs())
    write_report(job)
    return job


def refuse_diverged(trainings: Sequence[Training]) -> None:
    """InputError for a training that diverged, which leaves no model to score."""
    for training in trainings:
        if training.state == "diverged":
            steps = read_records(training.folder / METRICS)[-1]["step"]
            raise skips_error(training.folder, steps, training.run.guard.max_skips)


def gather(settings: QuickstartSettings, out: Path) -> dict[str, Sizes]:
    """Write the training and held-out documents, unless they exist; returns the domains' sizes by side."""
    if not documents_file(out, HELDOUT).exists():
        for side, documents in read_sides(settings).items():
            documents_file(out, side).parent.mkdir(exist_ok=True)
            write_lines(documents_file(out, side), documents)
    return {side: domain_sizes(read_side(out, side)) for side in (TRAIN, HELDOUT)}


def read_sides(settings: QuickstartSettings) -> dict[str, list[Document]]:
    """The training and the held-out documents: the user's, or text that is on this machine."""
    if not settings.documents:
        return collect_local_text()
    fields = Fields(text=settings.text_field, domain=settings.domain_field)
    options = ReadOptions(fields, settings.on_error)
    return split_documents(settings.documents, TRAIN_CHARACTERS, HELDOUT_CHARACTERS, options)


def read_side(out: Path, side: str) -> Iterator[Document]:
    """The documents of one side that `gather` wrote."""
    with open(documents_file(out, side), "rb") as file:
        yield from map(parse_line, file)


def domain_sizes(documents: Iterator[Document]) -> Sizes:
    """How many documents and characters each domain has."""
    sizes: Sizes = {}
    for document in documents:
        size = sizes.setdefault(document.domain, {"documents": 0, "characters": 0})
        size["documents"] += 1
        size["characters"] += len(document.text)
    return sizes


def make_samples(out: Path, runs: Sequence[Path]) -> dict[str, list[dict[str, str]]]:
    """`samples`: for each domain a held-out prompt, and each model's continuation."""
    prompts = {document.domain: document.text[:PROMPT_CHARACTERS] for document in read_side(out, HELDOUT)}
    samples = {domain: {"domain": domain, "prompt": prompt} for domain, prompt in prompts.items()}
    for run in runs:
        model, tokenizer = load_model(run)
        for domain, sample in samples.items():
            how = Generation(SAMPLE_TOKENS, label=domain)
            sample[run.name] = continue_text(model, tokenizer, sample["prompt"], how)
    return {"samples": list(samples.values())}


def quickstart_results(
    found: Mapping[str, Any], corpus: Corpus, costs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """`results.json`: perplexities by domain, their differences, sizes, seconds and the documents' order."""
    dense, mixture = found["cells"]
    design = mixture["name"]
    scores = ("perplexity", "perplexity_all")
    difference = found["variants"][1].get("difference", {})
    return {
        **{
            cell["name"]: {**{name: cell[name] for name in scores}, "loss": cell["training_loss"]}
            for cell in (dense, mixture)
        },
        "difference": {domain: intervals["documents"] for domain, intervals in difference.items()},
        "skip": mixture["skip"],
        "contexts": found["heldout"]["contexts"],
        "parameters": {
            DENSE: dense["parameters"]["total"],
            f"{design}_total": mixture["parameters"]["total"],
            f"{design}_active": mixture["parameters"]["active"],
        },
        "tokens": {"train": int(mixture["tokens"]), "heldout": sum(mixture["heldout_tokens"].values())},
        "seconds": {name: round(cost["seconds"], 1) for name, cost in costs.items()},
        "order": corpus.manifest["shared_instance_cosine"],
    }


@dataclass(frozen=True)
class Stages:
    """The stages of a job, in order. Once it is finished, their costs in `FOLDER/stages.json` stay."""

    folder: Path
    names: tuple[str, ...]
    finished: bool = False

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Announce a stage, run it, and add its seconds to those of interrupted attempts."""
        announce(name, self.names)
        started = time.perf_counter()
        try:
            yield
        finally:
            if not self.finished:
                costs = self.costs()
                before = costs.get(name, {"seconds": 0.0, "peak_memory_bytes": 0})
                steps = filter(None, map(last_record, self.folder.glob(f"runs/*/{METRICS}")))
                peaks = [*map(peak_resident, PROCESSES), *(step["peak_memory_bytes"] for step in steps)]
                costs[name] = {
                    "seconds": before["seconds"] + time.perf_counter() - started,
                    "peak_memory_bytes": max(before["peak_memory_bytes"], *peaks),
                }
                write_json(self.folder / STAGES, costs)

    def costs(self) -> dict[str, dict[str, Any]]:
        """{stage: {"seconds", "peak_memory_bytes"}}; the peak is of any one process up to the stage's end."""
        path = self.folder / STAGES
        return read_object(path, "remove it; only the stages' costs are lost") if path.exists() else {}
