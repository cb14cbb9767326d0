"""Which fields make a document, and which documents are selected."""

from pathlib import Path

import pyarrow as pa
import pytest
from reads import lines, read, texts, write_table

from loriini.data.read.document import Document
from loriini.data.read.records import Dropped, Fields


def test_default_id_and_domain_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "news.train.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + lines({"body": "a"}, b"", {"body": "b", "id": 7, "domain": None}, {"body": "c", "id": ""})
    )
    assert read(path, fields=Fields(text="body")) == [
        Document("news.train.jsonl:1", "a", "news"),
        Document("7", "b", "news"),
        Document("news.train.jsonl:4", "c", "news"),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.arrow"])
def test_nested_fields(tmp_path: Path, name: str) -> None:
    rows = [{"text": "a", "meta": {"source": "wiki", "n": 1}}, {"text": "b", "meta": None}]
    path = tmp_path / name
    if name == "a.jsonl":
        path.write_bytes(lines(*rows))
    else:
        write_table(path, pa.Table.from_pylist(rows))
    assert [d.domain for d in read(path, fields=Fields(domain="meta.source"))] == ["wiki", "a"]


def test_short_and_long_documents_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*({"text": "x" * n, "id": n} for n in (1, 5, 9))))
    dropped: list[Dropped] = []
    read = texts(path, min_characters=5, max_document_characters=8, on_drop=dropped.append)
    assert read == ["xxxxx"]
    assert dropped == [
        Dropped("1", f"{path}:1", "fewer than 5 characters"),
        Dropped("9", f"{path}:3", "more than 8 characters"),
    ]
