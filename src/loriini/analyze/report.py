"""`loriini analyze`: a trained model's routes on held-out text, and a report on the run."""

from pathlib import Path

from loriini.analyze.routes import ROUTES, Routes, routes_by_domain
from loriini.analyze.sections import expert_use_plots, learning_section, training_cards, who_routes_where
from loriini.common.checks import by_dotted_name
from loriini.common.errors import InputError
from loriini.common.folders import RUN, name_of, page_folder
from loriini.evaluate.heldout import tokenize_by_domain
from loriini.evaluate.runs import read_heldout
from loriini.evaluate.settings import EvaluationSettings
from loriini.model.weights.loading import load_config, load_model
from loriini.model.weights.run_record import training_of
from loriini.reporting.page import REPORT, element, join, paragraph, strong, table, write_page
from loriini.routing import RoutingConfig, causality_warning
from loriini.train.changes import PATHS
from loriini.train.config import read_run
from loriini.train.records.metrics import METRICS, read_records

LOCAL = (*PATHS, "init")
"""Settings that are paths on this machine; a page for others need not show them."""


def analyze_run(run: Path, settings: EvaluationSettings, out: Path | None = None) -> Path:
    """Write `routes.npz`, `routes.json` and `report.html` into `out` (default: the run's folder).

    The documents become instances as for `evaluate`, at the run's context; settings of length and scoring,
    such as `skip` and `routing`, have no effect. Returns the report's path. InputError for a dense model, for
    documents that cannot be read, are given twice or lack a label that the model needs, and for a folder with
    another command's report.
    """
    out = out or page_folder(run, "--out DIR")
    if (out / REPORT).exists() and not (out / ROUTES).exists():
        raise InputError(f"{out / REPORT}: of another command, which has no {ROUTES}; choose another --out")
    routes = measure_routes(run, settings)
    out.mkdir(parents=True, exist_ok=True)
    routes.save(out / ROUTES)
    return write_run_report(run, out, routes, load_config(run).routing)


def measure_routes(run: Path, settings: EvaluationSettings) -> Routes:
    """The routes of a run on documents by domain; see `analyze_run`."""
    model, tokenizer = load_model(run, settings.device)
    if not model.config.is_mixture:
        raise InputError(f"{run}: a dense model, so there is nothing to route; give the run of a mixture")
    training, names = training_of(run), model.config.label_names
    read = read_heldout(settings)
    length = training.context(model.config)
    heldout = tokenize_by_domain(read, tokenizer, length, settings.instances, names, settings.contexts)
    return routes_by_domain(model, heldout, training.evaluated_in, field=settings.domain_field)


def write_run_report(run: Path, out: Path, routes: Routes, design: RoutingConfig) -> Path:
    """Write `out/report.html` on the routes of a model of this design, and on its training.

    A model folder, which has no files on its training, has routes alone.
    """
    settings = read_run(run / RUN)[1] if (run / RUN).exists() else {}
    metrics = read_records(run / METRICS, "tokens", "loss")
    remark = causality_warning(design, training=True)
    name = settings.get("name", name_of(run))
    opening = join(
        element("p", "Loriini · a run", class_="kicker"),
        element("h1", name),
        paragraph(strong("Note: "), remark) if remark else "",
        training_cards(metrics) if metrics else "",
    )
    shown = [[name, str(value)] for name, value in by_dotted_name(settings).items() if name not in LOCAL]
    sections = {
        "Learning": learning_section(name, metrics),
        "Use of experts": expert_use_plots(metrics, design),
        "Who routes where": who_routes_where(routes),
        "Settings": table(["setting", "value"], shown),
    }
    return write_page(out / REPORT, f"Loriini: {name}", opening, sections.items())
