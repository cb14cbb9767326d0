"""The report of a finished job: every section, nothing unescaped, and no more than intervals support."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loriini.quickstart import report
from loriini.quickstart.report import Finished, write_report
from loriini.quickstart.settings import QuickstartSettings
from quickstart.conftest import SECTIONS
from reports import HOSTILE, Page, text_of, write_run


def difference(change: float, reach: float = 0.01) -> dict[str, float]:
    return {"change": change, "low": change - reach, "high": change + reach}


@pytest.fixture
def finished(tmp_path: Path) -> Finished:
    """A job without training, with a domain whose name and texts are hostile."""
    dense, mixture = {"python": 20.0, HOSTILE: 40.0}, {"python": 18.0, HOSTILE: 41.0}
    results = {
        "dense": {"perplexity": dense, "perplexity_all": {**dense, "python": 22.0}, "loss": 3.0},
        "lory": {"perplexity": mixture, "perplexity_all": mixture, "loss": 2.9},
        "parameters": {"dense": 1000, "lory_total": 4100, "lory_active": 1100},
        "tokens": {"train": 1536, "heldout": 200},
        "skip": 8,
        "contexts": "documents",
        "order": {"random": 0.1, "similar": 0.4},
        "difference": {"python": difference(-0.1), HOSTILE: difference(0.025), "all": difference(-0.017)},
    }
    cells = [
        {
            "name": name,
            "causality": causality,
            "state": "finished",
            "steps": 3,
            "tokens_per_second": speed,
            "curve": {axis: [1.0, 2.0, 3.0] for axis in ("loss", "tokens", "flops", "seconds")},
        }
        for name, causality, speed in (("dense", "strict", 200.0), ("lory", "after_first_segment", 150.0))
    ]
    variants = [{"name": cell["name"], "training_causality": cell["causality"]} for cell in cells]
    machine = dict.fromkeys(("processor", "jobs", "threads"), HOSTILE)
    document = {"id": HOSTILE, "domain": HOSTILE, "text": HOSTILE}
    write_run(tmp_path / "runs/lory", dense_steps=4)
    return Finished(
        QuickstartSettings(),
        tmp_path,
        results,
        {"cells": cells, "variants": variants, "machine": machine},
        {side: {HOSTILE: {"documents": 3, "characters": 900}} for side in ("train", "heldout")},
        [dict.fromkeys(("domain", "prompt", "dense", "lory"), HOSTILE)],
        [{**document, "neighbors": [{**document, "similarity": 0.8}] * 2}] * 2,
        {"train dense": {"seconds": 4.0, "peak_memory_bytes": 2_000_000}},
    )


def test_the_page_has_every_section_and_lets_nothing_through(finished: Finished) -> None:
    page = Page(write_report(finished).read_text())
    assert page.headings[1:] == SECTIONS
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert all(link.startswith("#") for link in page.links)
    assert HOSTILE in page.text
    assert "0.75 of the dense model's speed" in page.text
    assert "lory uses 1.10 times the dense parameters" in page.text


@pytest.mark.parametrize(
    ("causality", "change", "reach", "verdict"),
    [
        ("strict", -0.02, 0.01, "the lory mixture predicts unseen text better than the dense model"),
        ("strict", 0.02, 0.01, "the dense model predicts unseen text better than the lory mixture"),
        ("strict", -0.02, 0.03, "No clear difference"),
        ("strict", 0.02, float("nan"), "No clear difference"),
        ("none", -0.5, 0.01, "does not compare"),
    ],
)
def test_the_headline_claims_what_the_interval_does(
    finished: Finished, causality: str, change: float, reach: float, verdict: str
) -> None:
    found = json.loads(json.dumps(finished.found))
    found["cells"][1]["causality"] = causality
    differences = dict.fromkeys(("python", HOSTILE, "all"), difference(change, reach))
    job = replace(finished, found=found, results={**finished.results, "difference": differences})
    text = text_of(report.headline(job))
    assert verdict in text
    assert "perplexity 29.50 against 30.00" in text


def test_an_unknown_cosine_has_its_reason(finished: Finished) -> None:
    order = {"random": None, "similar": 0.25}
    job = replace(finished, results={**finished.results, "order": order}, neighbors=[])
    text = text_of(report.similar_documents_section(job))
    assert "no instance holds two documents" in text
    assert "0.250 in similar order" in text
