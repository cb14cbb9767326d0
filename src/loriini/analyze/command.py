"""`loriini analyze`: a trained model's routes on held-out text, and a report on the run."""

from pathlib import Path

from loriini.analyze.report import write_run_report
from loriini.analyze.routes import ROUTES, Routes, routes_by_domain
from loriini.common.errors import InputError
from loriini.common.hub import page_folder
from loriini.data.read import read_documents
from loriini.evaluate.heldout import tokenize_by_domain
from loriini.evaluate.runs import read_options
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.weights.loading import context_length, load_config, load_model, run_precision
from loriini.reporting.page import REPORT
from loriini.routing import causality_warning


def analyze_run(run: Path, settings: EvaluationSettings, out: Path | None = None) -> Path:
    """Write `routes.npz`, `routes.json` and `report.html` into `out` (default: the run's folder).

    The documents become instances as for `evaluate`. The settings of what is scored, such as `skip` and
    `routing`, have no effect. Returns the report's path. InputError for a dense model, and for documents that
    cannot be read or have no label where one is needed or are given twice, and for a folder with another
    command's report.
    """
    out = out or page_folder(run, "--out DIR")
    if (out / REPORT).exists() and not (out / ROUTES).exists():
        raise InputError(f"{out / REPORT}: of another command, which has no {ROUTES}; choose another --out")
    routes = measure_routes(run, settings)
    out.mkdir(parents=True, exist_ok=True)
    routes.save(out / ROUTES)
    return write_run_report(run, out, causality_warning(load_config(run).routing, training=True))


def measure_routes(run: Path, settings: EvaluationSettings) -> Routes:
    """The routes of a run on documents by domain; see `analyze_run`."""
    model, tokenizer = load_model(run, settings.device)
    if not model.config.is_mixture:
        raise InputError(f"{run}: a dense model, so there is nothing to route; give the run of a mixture")
    length, names = context_length(run, model.config), model.config.label_names
    read = read_documents(settings.documents, read_options(settings))
    heldout = tokenize_by_domain(read, tokenizer, length, settings.instances, names, settings.contexts)
    return routes_by_domain(model, heldout, run_precision(run), field=settings.domain_field)
