"""Report pages: self-contained HTML files, made from the files of a folder alone."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loriini.analyze import comparison
from loriini.analyze.comparison import Comparison
from loriini.analyze.next_commands import what_next
from loriini.analyze.page import Html, element, join, page, paragraph, strong, table
from loriini.analyze.routes import ROUTES, Routes
from loriini.analyze.sections import expert_use_plots, learning, training_cards, who_routes_where
from loriini.atomic import write_text
from loriini.errors import InputError
from loriini.fields import by_dotted_name
from loriini.json_file import UNREADABLE
from loriini.snapshot import name_of
from loriini.train.records.metrics import METRICS, read_metrics
from loriini.train.run import RUN, read_run

REPORT = "report.html"


def write_report(folder: Path) -> Path:
    """Write a quickstart's `report.html` and return its path.

    InputError without `results.json` and `settings.json`; sections without their files are left out.
    """
    settings = read_json(folder / "settings.json")
    runs = {name: folder / "runs" / name for name in (comparison.DENSE, settings["design"])}
    metrics = {name: read_metrics(run / METRICS) for name, run in runs.items()}
    c = Comparison(read_json(folder / "results.json"), settings, metrics)
    sections = {
        "What was trained, on what": comparison.setup(c),
        "Learning": learning(metrics),
        "Perplexity by domain": comparison.perplexity(c),
        "Use of experts": expert_use_plots(metrics[c.design], _is_soft(runs[c.design])),
        "Who routes where": who_routes_where(read_routes(runs[c.design] / ROUTES)),
        "Similar documents": comparison.similar_documents(c, read_json(folder / "neighbors.json", [])),
        "Samples": comparison.samples(c, read_json(folder / "samples.json", [])),
        "Time and memory": comparison.cost(c),
        "What to try next": what_next(settings, folder),
    }
    return write_page(
        folder / REPORT, f"Loriini: {c.design} and dense", comparison.headline(c), sections.items()
    )


def write_run_report(run: Path, out: Path, remark: str | None = None) -> Path:
    """Write `out/report.html` on one run's training, and on its routes if there is an `out/routes.npz`.

    `remark` is shown at the top. Sections without their files are left out: a model folder has routes
    alone. InputError if there is nothing to report.
    """
    settings = read_run(run / RUN)[1] if (run / RUN).exists() else {}
    metrics = read_metrics(run / METRICS, "tokens", "loss")
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
    sections = {
        "Learning": learning({name: metrics}),
        "Use of experts": expert_use_plots(metrics, _is_soft(run)),
        "Who routes where": who_routes_where(routes),
        "Settings": table(["setting", "value"], settings_rows(settings)) if settings else None,
    }
    out.mkdir(parents=True, exist_ok=True)
    return write_page(out / REPORT, f"Loriini: {name}", opening, sections.items())


def write_page(
    path: Path,
    title: str,
    opening: Html,
    sections: Iterable[tuple[str, Html | None]],
    style: str = "",
    script: str = "",
) -> Path:
    """Write a page of the sections that are not None; return its path."""
    shown = [(name, content) for name, content in sections if content is not None]
    write_text(path, page(title, opening, shown, style, script), errors="replace")
    return path


def read_json(path: Path, default: Any = None) -> Any:
    """A JSON file's value, or `default` if the file is missing. InputError without a default."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise InputError(
                f"{path}: missing, so there is nothing to report; finish the run first"
            ) from None
        return default
    except UNREADABLE as error:
        raise InputError(f"{path}: not JSON ({error}); remove it and run the command again") from None


def read_routes(path: Path) -> Routes | None:
    """The routes of a run, if they were measured."""
    return Routes.load(path) if path.exists() else None


def _is_soft(run: Path) -> bool:
    """Whether a run's design gives every unit every expert."""
    return (run / RUN).exists() and read_run(run / RUN)[0].routing.soft


def settings_rows(settings: Mapping[str, Any]) -> Iterable[list[str]]:
    """A row of name and value for every setting, without the corpus's path on this machine."""
    shown = {name: value for name, value in settings.items() if name != "corpus"}
    return ([name, str(value)] for name, value in by_dotted_name(shown).items())
