"""A corpus described as a table and as a page, with hostile names and texts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_report import HOSTILE, Page

from loriini.analyze.corpus import Inspection, inspect_and_write, summary, write_corpus_page
from loriini.corpus.prepare import prepare_documents
from loriini.corpus.settings import PrepareSettings
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop


def documents(drop: OnDrop) -> Iterator[Document]:
    for i in range(20):
        yield Document(f"{HOSTILE} {i}", f"{HOSTILE} number {i} of {i % 3}", HOSTILE)
    for _ in range(2):
        drop(Dropped(None, None, HOSTILE))


@pytest.fixture(scope="module")
def inspected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inspection, Path]:
    folder = tmp_path_factory.mktemp("inspected") / "corpus"
    settings = PrepareSettings(tokenizer="bpe:300", length=31, neighbors=4)
    return inspect_and_write(prepare_documents(folder, documents, {}, settings))


def test_the_page_lets_nothing_through(inspected: tuple[Inspection, Path]) -> None:
    _, path = inspected
    assert path.name == "inspect.html"
    page = Page(path.read_text())
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    headings = ["Documents", "Lengths", "Order and neighbours", "Documents and their nearest neighbours"]
    assert page.headings == ["Corpus corpus", *headings]
    assert f"{HOSTILE} number" in page.text
    assert page.text.count("A document and its nearest neighbours") == 6


def test_the_summary_names_what_was_dropped(inspected: tuple[Inspection, Path]) -> None:
    rows = summary(inspected[0])
    assert rows["documents"] == "20, 20 of them in the order"
    assert rows[f"dropped: {HOSTILE}"] == "2"
    assert rows["tokens"] == "280, 24 left out at the end"
    assert rows["order"] == "similar"
    assert {"recall@10", "restarts", "cosine within an instance, random order"} <= rows.keys()


def test_a_corpus_without_neighbours_has_less_to_show(
    inspected: tuple[Inspection, Path], tmp_path: Path
) -> None:
    order = {"method": None, "restarts": None, "jumps": None, "adjacent_cosine": None}
    numbers = {**inspected[0], "neighbors": None, "order": order, "shared_instance_cosine": {}}
    assert not {"recall@10", "encoder", "restarts"} & summary(numbers).keys()
    page = Page(write_corpus_page(tmp_path, numbers, []).read_text())
    assert page.headings[1:] == ["Documents", "Lengths"]
