"""`loriini analyze`: a trained model's routes on held-out text, and a report on the run."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from loriini.analyze.report import write_run_report
from loriini.analyze.routes import ROUTES, Routes, instances_by_domain, routes_of_sequences
from loriini.common.errors import InputError
from loriini.common.hub import page_folder
from loriini.common.progress import inform
from loriini.data.read import read_documents
from loriini.data.read.document import Document
from loriini.evaluate.heldout import check_label, check_tokens, document_ids, documents_of, tokenize_by_domain
from loriini.evaluate.runs import read_options
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.weights.loading import (
    context_length,
    load_config,
    load_model,
    run_precision,
    trained_with_document_mask,
)
from loriini.reporting.page import REPORT
from loriini.routing import causality_warning


def analyze_run(
    run: Path, settings: EvaluationSettings, out: Path | None = None, per_document: bool = False
) -> Path:
    """Write `routes.npz`, `routes.json` and `report.html` into `out` (default: the run's folder).

    Documents of a domain are joined and cut into instances as for `evaluate`; with `per_document`, or for a
    run that was trained with documents apart, each is routed by itself, cut to the model's context; then
    `instances` limits the documents. The settings of what is scored, such as `skip` and `routing`, have no
    effect. Returns the report's path. InputError for a dense model, and for documents that cannot be read or
    have no label where one is needed or are given twice, and for a folder with another command's report.
    """
    out = out or page_folder(run, "--out DIR")
    if (out / REPORT).exists() and not (out / ROUTES).exists():
        raise InputError(f"{out / REPORT}: of another command, which has no {ROUTES}; choose another --out")
    routes = measure_routes(run, settings, per_document)
    out.mkdir(parents=True, exist_ok=True)
    routes.save(out / ROUTES)
    return write_run_report(run, out, causality_warning(load_config(run).routing, training=True))


def measure_routes(run: Path, settings: EvaluationSettings, per_document: bool = False) -> Routes:
    """The routes of a run on documents by domain; see `analyze_run`."""
    model, tokenizer = load_model(run, settings.device)
    if not model.config.is_mixture:
        raise InputError(f"{run}: a dense model, so there is nothing to route; give the run of a mixture")
    if trained_with_document_mask(run) and not per_document:
        inform(f"{run} was trained with document_mask, so each document is routed by itself (--per-document)")
        per_document = True
    read, most = read_documents(settings.documents, read_options(settings)), settings.instances
    length, names = context_length(run, model.config), model.config.label_names
    if per_document:
        sequences, of_documents = sequences_by_domain(read, tokenizer, length, most, names), None
    else:
        heldout = tokenize_by_domain(read, tokenizer, length, most, names)
        sequences, of_documents = instances_by_domain(heldout), documents_of(heldout)
    return routes_of_sequences(
        model, sequences, precision=run_precision(run), field=settings.domain_field, documents=of_documents
    )


def sequences_by_domain(
    documents: Iterable[Document],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    most: int | None = None,
    label_names: Sequence[str] | None = None,
) -> dict[str, list[Tensor]]:
    """Each document's first `length` token ids as a sequence, by domain; of each domain at most `most`.

    InputError for a domain of whose text the tokenizer makes no token.
    """
    sequences = defaultdict[str, list[Tensor]](list)
    for document in documents:
        if label_names is not None:
            check_label(document, label_names)
        if most is not None and len(sequences[document.domain]) >= most:
            continue
        of_domain = sequences[document.domain]
        if ids := document_ids(document, tokenizer)[:length]:
            of_domain.append(torch.tensor(ids))
    check_tokens({domain: bool(of_domain) for domain, of_domain in sequences.items()})
    return dict(sorted(sequences.items()))
