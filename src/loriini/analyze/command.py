"""A trained model and held-out text to its routes and a report of one run."""

from collections.abc import Sequence
from pathlib import Path

from loriini.analyze.report import write_run_report
from loriini.analyze.routes import ROUTES, routes_by_domain
from loriini.errors import InputError
from loriini.evaluate.perplexity import tokenize_by_domain
from loriini.model.loading import load_model
from loriini.routing import not_causal
from loriini.sources import Fields, ReadOptions, read_documents


def analyze_run(run: Path, documents: Sequence[str], domain_field: str, out: Path | None = None) -> Path:
    """Write `routes.npz` and `report.html` into `out` (default: the run's folder); return the report's path.

    InputError for a dense model, and for documents that cannot be read or have no label where one is needed.
    """
    model, tokenizer = load_model(run)
    if model.config.num_experts == 1:
        raise InputError(f"{run}: a dense model, so there is nothing to route; give the run of a mixture")
    read = read_documents(documents, ReadOptions(Fields(domain=domain_field)))
    length, names = model.config.max_position_embeddings, model.config.label_names
    heldout = tokenize_by_domain(read, tokenizer, length, label_names=names)
    routes = routes_by_domain(model, {domain: text.ids for domain, text in heldout.items()})
    out = out or run
    out.mkdir(parents=True, exist_ok=True)
    routes.save(out / ROUTES)
    return write_run_report(run, out, not_causal(model.config.routing))
