import json
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.read.document import Document
from loriini.data.read.records import Dropped, OnDrop
from loriini.data.read.streams import DocumentStream
from runs import interrupt


def test_round_trip(tmp_path: Path) -> None:
    documents = [
        Document("a", "first", "x"),
        Document("b", "first", "x"),
        Document("a", "second", "y"),
        Document("d", "third", "y"),
        Document("c", "second", "y"),
    ]
    calls = []

    def source(drop: OnDrop) -> list[Document]:
        calls.append(1)
        drop(Dropped(None, "a.jsonl:7", "no text"))
        return documents

    built = write_documents(tmp_path / "documents", [DocumentStream(source, "made")], {"seed": 0})
    assert [(d.id, d.text) for d in stored_documents(built)] == [
        ("a", "first"),
        ("a", "second"),
        ("d", "third"),
    ]
    assert built.counts == {
        "documents_in": 5,
        "documents": 3,
        "characters": 16,
        "domains": {"x": 1, "y": 2},
        "skipped": {"no text": 1},
        "duplicates": 2,
        "shards": [3],
    }
    dropped = [json.loads(line) for line in built.path("dropped.jsonl").read_text().splitlines()]
    assert dropped == [
        {"id": None, "where": "a.jsonl:7", "reason": "no text", "detail": ""},
        {"id": "b", "where": None, "reason": "exact duplicate", "detail": "repeats document 0"},
        {"id": "c", "where": None, "reason": "exact duplicate", "detail": "repeats document 1"},
    ]
    assert write_documents(tmp_path / "documents", [DocumentStream(source, "made")], {"seed": 0}) == built
    assert len(calls) == 1
    with pytest.raises(InputError, match="other settings"):
        write_documents(tmp_path / "documents", [DocumentStream(source, "made")], {"seed": 1})


def test_streams_are_read_once_whichever_others_come_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their documents stay in the order of the streams; one that is given twice is read twice."""
    reads = []

    def stream(name: str) -> DocumentStream:
        def read(drop: OnDrop) -> list[Document]:
            reads.append(name)
            return [Document(name, name, "x"), Document(f"{name} too", f"{name} too {len(reads)}", "x")]

        return DocumentStream(read, name)

    with monkeypatch.context() as patch:
        patch.setattr("loriini.data.prepare.text.documents._compare", interrupt)
        for names, new in (("bcbd", "bcbd"), ("abcbd", "a"), ("bcdb", ""), ("dac", "")):
            reads.clear()
            with pytest.raises(KeyboardInterrupt):
                write_documents(tmp_path / "documents", [stream(name) for name in names], {})
            assert "".join(reads) == new
    built = write_documents(tmp_path / "documents", [stream(name) for name in "dbab"], {})
    assert [d.text for d in stored_documents(built)] == [
        "d",
        "d too 4",
        "b",
        "b too 1",
        "a",
        "a too 1",
        "b too 3",
    ]
    assert reads == []


def test_too_many_domains_are_refused_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loriini.data.prepare.text.documents.DOMAIN_LIMIT", 2)
    made = [Document(str(i), f"text {i}", f"domain {i // 2}") for i in range(6)]
    streams = [DocumentStream(lambda _, half=half: made[half], str(half)) for half in (slice(3), slice(3, 6))]
    for sources in ([DocumentStream(lambda _: made, "made")], streams):
        with pytest.raises(InputError, match="--domain-field"):
            write_documents(tmp_path / "documents", sources, {})
        assert not (tmp_path / "documents").exists()
    write_documents(tmp_path / "documents", [DocumentStream(lambda _: made[:4], "fewer")], {"other": 1})


def test_a_shard_of_repeated_texts_only_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loriini.data.prepare.text.documents.SHARD_CHARACTERS", 1)
    same = [Document(name, "one text", "x") for name in "abc"]
    built = write_documents(tmp_path / "documents", [DocumentStream(lambda _: same, "made")], {})
    assert [d.id for d in stored_documents(built)] == ["a"]
    assert (built.counts["duplicates"], built.counts["shards"]) == (2, [1])
