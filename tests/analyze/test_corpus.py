from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_report import HOSTILE, Page

from loriini.analyze.corpus import inspect_and_write, summary
from loriini.corpus.prepare import Corpus, PrepareSettings, prepare_documents
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop

SETTINGS = PrepareSettings(tokenizer="bpe:300", length=31, neighbors=4)


def documents(drop: OnDrop) -> Iterator[Document]:
    for i in range(20):
        yield Document(f"{HOSTILE} {i}", f"{HOSTILE} number {i} of {i % 3}", HOSTILE)
    for _ in range(2):
        drop(Dropped(None, None, HOSTILE))


def made(folder: Path, settings: PrepareSettings = SETTINGS) -> Corpus:
    return prepare_documents(folder / "corpus", documents, {}, settings)


def test_a_page_with_neighbors_and_nothing_unescaped(tmp_path: Path) -> None:
    found, path = inspect_and_write(made(tmp_path))
    assert path == tmp_path / "corpus" / "inspect.html"
    page = Page(path.read_text())
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert page.headings == [
        "Corpus corpus",
        "Documents",
        "Lengths",
        "Order and neighbours",
        "Documents and their nearest",
    ]
    assert f"{HOSTILE} number" in page.text
    assert page.text.count("A document and its nearest") == 6
    assert found["documents"]["dropped"][HOSTILE] == 2


def test_a_corpus_in_random_order_has_less_to_show(tmp_path: Path) -> None:
    _, path = inspect_and_write(made(tmp_path, replace(SETTINGS, order="random")))
    assert Page(path.read_text()).headings == ["Corpus corpus", "Documents", "Lengths"]


@pytest.mark.parametrize("order", ["similar", "random"])
def test_summary_tells_what_there_is(tmp_path: Path, order: str) -> None:
    found, _ = inspect_and_write(made(tmp_path, replace(SETTINGS, order=order)))
    told = summary(found)
    assert told["documents"] == "20, 20 of them in the order"
    assert told[f"dropped: {HOSTILE}"] == "2"
    assert told["order"] == order
    assert ("recall@10" in told) == (order == "similar")
