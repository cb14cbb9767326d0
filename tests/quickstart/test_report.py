"""The report of a finished job: every section, no outside resource, nothing unescaped."""

from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.quickstart.report import write_report
from reports import HOSTILE, Page

SECTIONS = [
    "What was trained, on what",
    "Learning",
    "Perplexity by domain",
    "Use of experts",
    "Who routes where",
    "Similar documents",
    "Samples",
    "Time and memory",
    "What to try next",
]


def test_the_page_has_every_section_and_lets_nothing_through(job: Path) -> None:
    path = write_report(job)
    text = path.read_text()
    page = Page(text)
    assert path == job / "report.html"
    assert page.headings[1:] == SECTIONS
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert all(link.startswith("#") for link in page.links)
    assert not any(outside in text for outside in ("url(http", "@import", "<script"))
    assert HOSTILE in page.text


def test_what_is_absent_is_left_out(job: Path) -> None:
    for name in ("samples.json", "neighbors.json", "runs/lory/routes.npz", "runs/lory/metrics.jsonl"):
        (job / name).unlink()
    left_out = {"Use of experts", "Who routes where", "Samples"}
    assert Page(write_report(job).read_text()).headings[1:] == [s for s in SECTIONS if s not in left_out]
    (job / "results.json").unlink()
    with pytest.raises(InputError, match=r"results\.json"):
        write_report(job)
