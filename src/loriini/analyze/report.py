"""Report pages: self-contained HTML files, made from the files of a folder alone."""

from pathlib import Path

from loriini.analyze.routes import ROUTES, Routes
from loriini.analyze.sections import expert_use_plots, learning_section, training_cards, who_routes_where
from loriini.common.checks import by_dotted_name
from loriini.common.errors import InputError
from loriini.common.hub import RUN, name_of
from loriini.reporting.page import REPORT, element, join, paragraph, strong, table, write_page
from loriini.train.changes import PATHS
from loriini.train.config import read_run
from loriini.train.records.metrics import METRICS, read_records

LOCAL = (*PATHS, "init")
"""Settings that are paths on this machine, which a page that is passed on need not show."""


def write_run_report(run: Path, out: Path, remark: str | None = None) -> Path:
    """Write `out/report.html` on one run's training, and on its routes if there is an `out/routes.npz`.

    `remark` is shown at the top. Sections without their files are left out: a model folder has routes
    alone. InputError if there is nothing to report.
    """
    trained, settings = read_run(run / RUN) if (run / RUN).exists() else (None, {})
    metrics = read_records(run / METRICS, "tokens", "loss")
    routes = read_routes(out / ROUTES)
    if not metrics and routes is None:
        raise InputError(f"{run}: has neither {METRICS} nor measured routes; train the run first")
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
        "Use of experts": expert_use_plots(metrics, trained.routing if trained else None),
        "Who routes where": who_routes_where(routes),
        "Settings": table(["setting", "value"], shown) if settings else None,
    }
    out.mkdir(parents=True, exist_ok=True)
    return write_page(out / REPORT, f"Loriini: {name}", opening, sections.items())


def read_routes(path: Path) -> Routes | None:
    """The routes of a run, if they were measured."""
    return Routes.load(path) if path.exists() else None
