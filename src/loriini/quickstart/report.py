"""The quickstart's `report.html`, made from the files in its folder alone."""

import json
from pathlib import Path
from typing import Any

from loriini.analyze.report import read_routes, routing_of
from loriini.analyze.routes import ROUTES
from loriini.analyze.sections import expert_use_plots, learning_section, who_routes_where
from loriini.common.errors import InputError
from loriini.common.json_file import UNREADABLE
from loriini.quickstart import sections
from loriini.quickstart.next_commands import what_next
from loriini.quickstart.results import RESULTS
from loriini.quickstart.sections import QuickstartFiles
from loriini.quickstart.settings import DENSE
from loriini.reporting.page import REPORT, write_page
from loriini.train.records.metrics import METRICS, read_metrics


def write_report(folder: Path) -> Path:
    """Write the report on a finished job and return its path.

    InputError without `results.json` and `settings.json`; sections without their files are left out.
    """
    settings = read_json(folder / "settings.json")
    runs = {name: folder / "runs" / name for name in (DENSE, settings["design"])}
    metrics = {name: read_metrics(run / METRICS) for name, run in runs.items()}
    c = QuickstartFiles(read_json(folder / RESULTS), settings, metrics)
    design = routing_of(runs[c.design])
    shown = {
        "What was trained, on what": sections.setup_section(c),
        "Learning": learning_section(metrics, design),
        "Perplexity by domain": sections.perplexity_section(c),
        "Use of experts": expert_use_plots(metrics[c.design], design),
        "Who routes where": who_routes_where(read_routes(runs[c.design] / ROUTES)),
        "Similar documents": sections.similar_documents_section(c, read_json(folder / "neighbors.json", [])),
        "Samples": sections.samples_section(c, read_json(folder / "samples.json", [])),
        "Time and memory": sections.cost_section(c),
        "What to try next": what_next(settings, folder),
    }
    return write_page(folder / REPORT, f"Loriini: {c.design} and dense", sections.headline(c), shown.items())


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
