"""Pages on a single run: every section that it has files for, nothing unescaped."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loriini.analyze.report import write_run_report
from loriini.analyze.routes import Routes
from loriini.analyze.sections import expert_use_plots, who_routes_where
from loriini.routing import DESIGNS
from reports import HOSTILE, Page, dump, text_of, write_run


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The folder of a finished run."""
    write_run(tmp_path / "lory", dense_steps=4)
    return tmp_path / "lory"


def steps_of(trained: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]


def test_a_last_step_that_was_skipped_is_left_out(trained: Path) -> None:
    metrics = steps_of(trained)
    metrics[-1] |= {"gate_entropy": [0.5, None], "confidence_entropy": [None, 0.5]}
    soft, sparse = (text_of(expert_use_plots(metrics, DESIGNS[name])) for name in ("lory", "mixtral"))
    assert "spreads its weight over 3.4 of 4 experts" in soft
    assert "the busiest expert of a layer gets 35.0 % of the choices and the least busy 15.0 %" in sparse


def test_choices_and_weights_are_two_pictures_where_they_differ(trained: Path) -> None:
    routes = Routes.load(trained / "routes.npz")
    assert "Share of choices" not in text_of(who_routes_where(routes))
    sparse = replace(routes, choices=np.array([[[9.0, 1, 0, 0], [5, 5, 0, 0]]] * 2), field="topic")
    text = text_of(who_routes_where(sparse))
    assert "Share of choices" in text
    assert f"agrees with the topic by {sparse.domain_agreement[0]:.2f}" in text


def test_the_report_of_one_run(trained: Path, tmp_path: Path) -> None:
    run, routes = trained, Routes.load(trained / "routes.npz")
    settings = {"name": HOSTILE, "steps": 24, "routing": {"unit": "segment"}, "corpus": ["/somewhere/text"]}
    settings |= {"init": "/somewhere/model", "evaluate": {"heldout": ["/somewhere/held out"]}}
    dump(run / "run.json", settings)
    page = Page(write_run_report(run, tmp_path, routes, DESIGNS["smear"]).read_text())
    assert page.headings == [HOSTILE, "Learning", "Use of experts", "Who routes where", "Settings"]
    assert "Note: " in page.text
    assert "activation" not in page.text
    assert "routing.unit" in page.text
    assert "/somewhere" not in page.text


def test_the_report_of_a_model_folder_has_its_routes_alone(trained: Path, tmp_path: Path) -> None:
    routes = Routes.load(trained / "routes.npz")
    for folder, name in (("some-model", "some-model"), ("a-run/model", "a-run")):
        written = write_run_report(tmp_path / folder, tmp_path, routes, DESIGNS["lory"])
        assert Page(written.read_text()).headings == [name, "Who routes where"]
