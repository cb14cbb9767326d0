"""One line an item, the same in the page, in Markdown and in the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from loriini.papers.reproduce.report import findings_page, in_words, item_line

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "a minus b: −0.031 (−0.050 to −0.012) nats, claimed below 0"),
        (
            {"range": [0.5, None], "unit": ""},
            "a minus b: −0.031 (−0.050 to −0.012), claimed at least 0.500",
        ),
        ({"interval": [None, None]}, "a minus b: −0.031 nats, claimed below 0"),
        (
            {"mean": 1827.4, "exact": True, "range": [1, 2000]},
            "a minus b: 1,827 nats, claimed 1 to 2,000",
        ),
    ],
)
def test_a_claim_in_words(change: dict[str, Any], words: str) -> None:
    claim = {
        "quantity": "a minus b",
        "mean": -0.031,
        "interval": [-0.05, -0.012],
        "range": [None, 0.0],
        "unit": "nats",
        "exact": False,
    }
    assert in_words(claim | change) == words


def test_all_pages_have_the_same_lines(reproduced: Path) -> None:
    items = json.loads((reproduced / "results.json").read_text())["items"]
    page = (reproduced / "findings.md").read_text()
    assert page == findings_page(items)
    assert all(f"| {' | '.join(item_line(item))} |" in page for item in items.values())


def test_the_published_findings_are_made_of_the_committed_results() -> None:
    """`findings_page` of benchmarks/results/reproduce/small.json, which is a summary of a results.json."""
    items = json.loads((ROOT / "benchmarks/results/reproduce/small.json").read_text("utf-8"))["items"]
    assert findings_page(items) == (ROOT / "docs" / "findings.md").read_text("utf-8")
