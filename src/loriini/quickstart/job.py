"""The stages of `loriini quickstart`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from loriini.analyze.routes import ROUTES, routes_by_domain
from loriini.common.atomic import write_json
from loriini.common.json_file import read_object
from loriini.common.progress import inform, progress
from loriini.data.jobs.artifact import Artifact
from loriini.data.jobs.lock import folder_lock
from loriini.data.prepare.inspection import neighbor_examples
from loriini.data.prepare.prepare import Corpus, prepare_documents
from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.read import Fields, input_identity
from loriini.data.read.document import Document
from loriini.data.read.local_text import collect_local_text
from loriini.data.read.split import split_documents
from loriini.evaluate.heldout import (
    HeldOut,
    check_domains,
    check_label,
    check_lengths,
    documents_of,
    tokenize_by_domain,
)
from loriini.evaluate.intervals import differences_by_domain
from loriini.evaluate.perplexity import evaluate
from loriini.evaluate.samples import Generation, continue_text
from loriini.model.weights.loading import load_model, run_precision, tokenizer_in
from loriini.quickstart.report import write_report
from loriini.quickstart.results import RESULTS, print_table, write_results
from loriini.quickstart.settings import DENSE, Quickstart
from loriini.quickstart.stages import Stages
from loriini.train.config import TrainConfig
from loriini.train.corpora import read_corpora
from loriini.train.loop import train

TRAIN_CHARACTERS, HELDOUT_CHARACTERS = 40_000_000, 2_000_000
HELDOUT_INSTANCES = 160
"""Instances of each domain that are evaluated: some 80,000 tokens."""
PROMPT_TOKENS, SAMPLE_TOKENS = 48, 64
MORE_TEXT = (
    "give more documents of it, or join it with others (by --domain-field, or as one file), and another --out"
)
"""The remedy for a domain with too little held-out text; a folder keeps its documents."""


def run_quickstart(settings: Quickstart, out: Path) -> None:
    """Run the whole job in the folder `out`, except what is finished there.

    InputError for wrong documents, for a folder of something else, and while another process works there.
    """
    identity = input_identity(settings.documents)  # before anything is written
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        settings.claim(out, identity)
        inform(f"Everything goes to {out}")
        _run_stages(settings, identity, out)


def _run_stages(settings: Quickstart, identity: Mapping[str, str], out: Path) -> None:
    runs = settings.runs
    training = {name: f"train {run.name}" for name, run in runs.items()}
    names = ("gather documents", "prepare corpus", *training.values(), "evaluate and analyze")
    stage = Stages(out, names, finished=(out / RESULTS).exists())
    sides = cache(lambda: read_sides(settings))
    with stage("gather documents"), progress("held-out text"):
        folder = out / "corpora/heldout/documents"
        heldout = write_documents(folder, lambda drop: sides()["heldout"], {"side": "heldout"}, identity)
    check_domains(heldout.counts["domains"])
    with stage("prepare corpus"):
        folder = out / "corpora/train"
        corpus = prepare_documents(
            folder,
            lambda drop: drop_heldout(heldout, sides()["train"]),
            identity,
            settings.prepare_settings(),
        )
    check_labels(runs[settings.design], corpus, heldout)
    texts, skip = heldout_texts(heldout, corpus), runs[settings.design].config().first_segment_length
    check_lengths(texts, skip, more=MORE_TEXT)
    for name, run in runs.items():
        with stage(training[name]):
            run = replace(run, corpus=(corpus.folder.resolve(),))
            train(run, read_corpora(run.corpus), out / "runs" / name)
    with stage("evaluate and analyze"):
        evaluations = {name: evaluate_run(out / "runs" / name, texts, skip) for name in runs}
        write_samples(out, tuple(runs), texts)
        write_json(out / "neighbors.json", neighbor_examples(corpus))
        dense, mixture = (evaluations[name]["instance_losses"] for name in runs)
        differences = differences_by_domain(dense, mixture, documents_of(texts))
    write_results(out, settings, corpus, evaluations, differences, stage.costs())
    print_table(evaluations, differences, settings.design)
    print(write_report(out))


def read_sides(settings: Quickstart) -> dict[str, list[Document]]:
    """The training and the held-out documents: the user's, or text that is on this machine."""
    if not settings.documents:
        inform("Gathering text from the running Python installation …")
        return collect_local_text()
    return split_documents(
        settings.documents,
        TRAIN_CHARACTERS,
        HELDOUT_CHARACTERS,
        on_error=settings.on_error,
        fields=Fields(text=settings.text_field, domain=settings.domain_field),
    )


def drop_heldout(heldout: Artifact, documents: list[Document]) -> list[Document]:
    """The documents whose text is not held out.

    Text of this machine may have changed sides if packages came or went since an attempt was interrupted.
    """
    texts = {document.text for document in stored_documents(heldout)}
    return [document for document in documents if document.text not in texts]


def check_labels(run: TrainConfig, corpus: Corpus, heldout: Artifact) -> None:
    """InputError if the mixture routes by domain and a held-out document's domain has no expert."""
    names = run.label_names(corpus.instances)
    run.check(names)
    if names:
        for document in stored_documents(heldout):
            check_label(document, names)


def heldout_texts(heldout: Artifact, corpus: Corpus) -> dict[str, HeldOut]:
    """The held-out documents in the corpus's tokens, as instances of its length by domain."""
    tokenizer, length = tokenizer_in(corpus.tokenizer), corpus.instances.length
    return tokenize_by_domain(stored_documents(heldout), tokenizer, length, HELDOUT_INSTANCES)


def evaluate_run(run: Path, texts: Mapping[str, HeldOut], skip: int) -> dict[str, Any]:
    """Write a model's `evaluation.json`, and a mixture's `routes.npz`, unless they are there.

    Returns what `evaluate` does, with the losses of each instance.
    """
    path = run / "evaluation.json"
    evaluation = read_object(path, "remove it; it is made again") if path.exists() else {}
    if "instance_losses" not in evaluation:
        model, _ = load_model(run)
        evaluation = evaluate(model, texts, skip, precision=run_precision(run), title=f"evaluate {run.name}")
        if model.config.is_mixture:
            routes_by_domain(model, texts, run_precision(run)).save(run / ROUTES)
        write_json(path, evaluation)
    return evaluation


def write_samples(out: Path, names: tuple[str, ...], texts: Mapping[str, HeldOut]) -> None:
    """Write `samples.json`: for each domain a held-out prompt, and each model's continuation."""
    path = out / "samples.json"
    if path.exists():
        return
    models = {name: load_model(out / "runs" / name) for name in names}
    tokenizer = models[DENSE][1]
    samples = []
    for domain, text in texts.items():
        prompt = tokenizer.decode(text.ids[len(text.ids) // 2, :PROMPT_TOKENS], skip_special_tokens=True)
        continuations = {
            name: continue_text(model, tokenizer, prompt, Generation(SAMPLE_TOKENS, label=domain))
            for name, (model, _) in models.items()
        }
        samples.append({"domain": domain, "prompt": prompt, **continuations})
    write_json(path, samples)
