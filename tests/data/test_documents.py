import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from loriini.data.documents import Document, split_document, stored_documents, write_documents
from loriini.data.readers import Fields, input_identity, read_documents
from loriini.errors import InputError

RECORDS = [{"id": f"d{i}", "text": f"text number {i}", "domain": "web"} for i in range(3)]
EXPECTED = [Document(**record) for record in RECORDS]
GOOD = b'{"text": "good"}'
FLAWS = {
    b'{"text": "cut': "not valid JSON",
    b"[1, 2]": "not a JSON object",
    b'{"id": "x"}': "no text",
    b'{"text": null}': "no text",
    b'{"text": " \\n"}': "empty text",
    b'{"text": 7}': "text is not a string",
    b'{"text": "\xff"}': "not valid UTF-8",
    b'{"text": "\\ud800"}': "not valid Unicode",
}


def lines(*values: bytes | dict) -> bytes:
    return b"".join((v if isinstance(v, bytes) else json.dumps(v).encode()) + b"\n" for v in values)


def pack(path: Path, data: bytes) -> bytes:
    if path.suffix == ".gz":
        return gzip.compress(data)
    return zstandard.compress(data) if path.suffix == ".zst" else data


def texts(path: Path, **options: object) -> list[str]:
    return [document.text for document in read_documents([path], **options)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    else:
        path.write_bytes(pack(path, lines(*RECORDS)))
    assert list(read_documents([path])) == EXPECTED


def test_absent_id_and_domain_come_from_the_place(tmp_path: Path) -> None:
    path = tmp_path / "news.train.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines({"body": "a"}, b"", {"body": "b", "id": 7, "domain": None}))
    documents = list(read_documents([path], Fields(text="body")))
    assert documents == [Document("news.train.jsonl:1", "a", "news"), Document("7", "b", "news")]


def test_zstd_frames_are_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(zstandard.compress(lines(record)) for record in RECORDS))
    assert list(read_documents([path])) == EXPECTED


def test_folder_is_walked_in_order(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, data in {
        "b/notes.md": b"# Notes",
        "a/deep/code.py": b"x = 1",
        "top.txt": b"top",
        "a/data.jsonl": lines(RECORDS[0]),
        "a/settings.json": b"{\n}",
        "b/picture.png": b"\x89PNG\xff",
        "b/empty.txt": b"",
        ".git/config": b"hidden",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    skipped: Counter[str] = Counter()
    assert list(read_documents([root], skipped=skipped)) == [
        EXPECTED[0],
        Document("a/deep/code.py", "x = 1", "a"),
        Document("a/settings.json", "{\n}", "a"),
        Document("b/notes.md", "# Notes", "b"),
        Document("top.txt", "top", "root"),
    ]
    assert skipped == {"not a text file": 1, "empty text": 1}


@pytest.mark.parametrize(("line", "reason"), FLAWS.items())
def test_flawed_line_stops_or_is_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(GOOD, line, b'{"text": "after"}'))
    with pytest.raises(InputError, match=rf"web\.jsonl:2: {reason}.*--on-error skip"):
        texts(path)
    skipped: Counter[str] = Counter()
    assert texts(path, on_error="skip", skipped=skipped) == ["good", "after"]
    assert skipped == {reason: 1}


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_archive_keeps_what_was_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"web.jsonl{suffix}"
    numbers = [{"text": str(hash((i, i)))} for i in range(20_000)]
    whole = pack(path, lines(*numbers))
    path.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(InputError, match=r"truncated or damaged archive .*mend the file"):
        texts(path)
    skipped: Counter[str] = Counter()
    read = texts(path, on_error="skip", skipped=skipped)
    assert skipped == {"truncated or damaged archive": 1}
    assert len(read) > 10_000
    assert read == [record["text"] for record in numbers[: len(read)]]


def test_file_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    for name, reason in {
        "a.jsonl.gz": "damaged",
        "a.jsonl.zst": "damaged",
        "a.parquet": "unreadable parquet",
    }.items():
        (tmp_path / name).write_bytes(b"plain text, and no archive at all")
        with pytest.raises(InputError, match=reason):
            texts(tmp_path / name)


def test_parquet_flaws(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["good", None, ""]}), path)
    with pytest.raises(InputError, match=r"a\.parquet:2: no text"):
        texts(path)
    skipped: Counter[str] = Counter()
    assert texts(path, on_error="skip", skipped=skipped) == ["good"]
    assert skipped == {"no text": 1, "empty text": 1}
    with pytest.raises(InputError, match=r"no text column .*'body' is not among text"):
        texts(path, fields=Fields(text="body"))


def test_missing_or_empty_paths(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        texts(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="no such file"):
        input_identity([tmp_path / "absent.jsonl"])
    with pytest.raises(InputError, match="no document found"):
        texts(tmp_path, on_error="skip")


@given(st.text(alphabet="ab \n\té", max_size=200), st.integers(1, 50))
def test_pieces_concatenate_to_the_text(text: str, limit: int) -> None:
    pieces = split_document(Document("d", text, "x"), limit)
    assert "".join(piece.text for piece in pieces) == text
    assert all(len(piece.text) <= limit for piece in pieces)
    assert len(pieces) == 1 or [piece.id for piece in pieces] == [f"d#{i}" for i in range(len(pieces))]


def test_cuts_prefer_line_ends_then_spaces() -> None:
    pieces = split_document(Document("d", "one two\nthree four sixseveneightnine", "x"), 12)
    assert [piece.text for piece in pieces] == ["one two\n", "three four ", "sixseveneigh", "tnine"]
    with pytest.raises(ValueError, match="positive"):
        split_document(Document("d", "x", "x"), 0)


def test_artefact_round_trip(tmp_path: Path) -> None:
    documents = [
        Document("a", "first", "x"),
        Document("b", "first", "x"),
        Document("a", "second", "y"),
        Document("a#2", "third", "y"),
    ]
    calls = []

    def source(skipped: Counter[str]) -> list[Document]:
        calls.append(1)
        skipped["no text"] += 5
        return documents

    built = write_documents(tmp_path / "documents", source, {"seed": 0})
    assert [(d.id, d.text) for d in stored_documents(built)] == [
        ("a", "first"),
        ("a#2@1", "second"),
        ("a#2", "third"),
    ]
    assert built.counts == {
        "documents_in": 4,
        "documents": 3,
        "characters": 16,
        "domains": {"x": 1, "y": 2},
        "skipped": {"no text": 5},
        "duplicates": 1,
        "renamed_ids": 1,
        "cuts": 0,
        "shards": [3],
    }
    dropped = [json.loads(line) for line in built.path("dropped.jsonl").read_text().splitlines()]
    assert dropped == [{"id": "b", "domain": "x", "reason": "exact duplicate", "repeats": 0}]
    assert write_documents(tmp_path / "documents", source, {"seed": 0}) == built
    assert len(calls) == 1
    with pytest.raises(InputError, match="other settings"):
        write_documents(tmp_path / "documents", source, {"seed": 1})


def test_long_documents_are_cut(tmp_path: Path) -> None:
    built = write_documents(
        tmp_path / "documents", lambda _: [Document("a", "one two three", "x")], {}, max_characters=8
    )
    assert [d.text for d in stored_documents(built)] == ["one two ", "three"]


def test_nothing_left_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no document"):
        write_documents(tmp_path / "documents", lambda _: [], {})
    assert not (tmp_path / "documents").exists()


def test_identity_changes_with_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    before = input_identity([path, tmp_path])
    assert input_identity([path, tmp_path]) == before
    path.write_text("three")
    after = input_identity([path, tmp_path])
    assert all(before[name] != after[name] for name in (str(path), str(tmp_path)))
