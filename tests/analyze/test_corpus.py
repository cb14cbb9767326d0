"""A corpus described as a table and as a page, with hostile names and texts."""

from pathlib import Path
from typing import Any

from loriini.analyze.corpus import write_corpus_page
from reports import HOSTILE, Page

LENGTHS = {"mean": 14.0, "p50": 14.0, "max": 15.0}
INSPECTED: dict[str, Any] = {
    "documents": {"in": 20, "ordered": 18, "held_out": 0, "dropped": {HOSTILE: 2}},
    "tokens": {"in": 280, "left_out": 24, "unknown": 7},
    "instances": {"count": 8, "length": 31},
    "domains": {HOSTILE: {"documents": 20, "tokens": 280}},
    "tokens_per_document": LENGTHS,
    "documents_per_instance": LENGTHS,
    "order": {"method": "similar", "restarts": 1, "jumps": 3},
    "neighbors": {"encoder": HOSTILE, "width": 20, "k": 4, "cells": 1},
    "shared_instance_cosine": {"random": 0.607, "similar": None},
    "histograms": {"tokens_per_document": {"counts": [2, 18], "edges": [4.0, 8.0, 16.0]}},
}


def test_the_page_lets_nothing_through(tmp_path: Path) -> None:
    document = {"id": HOSTILE, "domain": HOSTILE, "text": HOSTILE}
    example = {**document, "neighbors": [{**document, "similarity": 0.5}] * 3}
    folder = tmp_path / "<b>corpus"
    folder.mkdir()
    path = write_corpus_page(folder, INSPECTED, [example] * 6)
    page = Page(path.read_text())
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    headings = ["Documents", "Lengths", "Order and neighbours", "Documents and their nearest neighbours"]
    assert page.headings[1:] == headings
    assert page.text.count("A document and its nearest neighbours") == 6
