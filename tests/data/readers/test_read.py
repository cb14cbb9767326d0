"""Records of every format as documents, and what becomes of the flawed ones."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from loriini.data.documents import Document
from loriini.data.readers import Dropped, Fields, Reading, parts, read_documents, read_part, records
from loriini.errors import InputError

RECORDS = [{"id": f"d{i}", "text": f'text "{i}",\n\t{i}', "domain": "web"} for i in range(3)]
EXPECTED = [Document(**record) for record in RECORDS]
GOOD = b'{"text": "good"}'
FLAWS = {
    b'{"text": "cut': "not valid JSON",
    b"[1, 2]": "not a JSON object",
    b'{"id": "x"}': "no text",
    b'{"text": null}': "no text",
    b'{"text": " \\n"}': "empty text",
    b'{"text": 7}': "text is not a string",
    b'{"text": "caf\xe9"}': "not valid UTF-8",
    b'{"text": "\\ud800"}': "not valid Unicode",
}


def lines(*values: bytes | dict) -> bytes:
    return b"".join((v if isinstance(v, bytes) else json.dumps(v).encode()) + b"\n" for v in values)


def separated(delimiter: str, end: str = "\r\n") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["domain", "text", "id"], delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(RECORDS)
    return text.getvalue().encode()


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), file)
    return file.getvalue()


def arrow(new: Callable = pa.ipc.new_stream) -> bytes:
    file = io.BytesIO()
    table = pa.Table.from_pylist(RECORDS)
    with new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return file.getvalue()


FORMATS = {
    "a.jsonl": lines(*RECORDS),
    "a.json": lines(*RECORDS),
    "a.ndjson": lines(*RECORDS),
    "a.csv": separated(","),
    "unix.csv": b"\xef\xbb\xbf" + separated(",", "\n"),
    "a.tsv": separated("\t"),
    "a.parquet": parquet(),
    "a.arrow": arrow(),
    "file.arrow": arrow(pa.ipc.new_file),
}
PACKED = {".gz": gzip.compress, ".zst": zstandard.compress}
ALL = FORMATS | {
    f"{name}{suffix}": pack(data)
    for suffix, pack in PACKED.items()
    for name, data in FORMATS.items()
    if name.endswith(("l", "v"))
}


def read(path: Path | str, **reading: Any) -> list[Document]:
    return list(read_documents([path], Reading(**reading)))


def texts(path: Path | str, **reading: Any) -> list[str]:
    return [document.text for document in read(path, **reading)]


def skipping(path: Path | str, **reading: Any) -> tuple[list[str], list[Dropped]]:
    """The texts that are read when flaws are skipped, and what is dropped."""
    dropped: list[Dropped] = []
    return texts(path, on_error="skip", drop=dropped.append, **reading), dropped


@pytest.mark.parametrize("name", ALL)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(ALL[name])
    assert read(path) == EXPECTED


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.zst", "a.parquet", "file.arrow"])
def test_files_elsewhere_are_read_the_same_way(name: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe(f"/bucket/{name}", ALL[name])
    try:
        assert read("memory://bucket") == read(f"memory://bucket/{name}") == EXPECTED
    finally:
        system.store.clear()


def test_absent_id_and_domain_come_from_the_place(tmp_path: Path) -> None:
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
def test_a_field_may_be_inside_another(tmp_path: Path, name: str) -> None:
    rows = [{"text": "a", "meta": {"source": "wiki", "n": 1}}, {"text": "b", "meta": None}]
    path = tmp_path / name
    if name == "a.jsonl":
        path.write_bytes(lines(*rows))
    elif name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    assert [d.domain for d in read(path, fields=Fields(domain="meta.source"))] == ["wiki", "a"]


def test_zstd_frames_are_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(zstandard.compress(lines(record)) for record in RECORDS))
    assert read(path) == EXPECTED


def test_folder_is_walked_in_order(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name, data in {
        "b/notes.md": b"# Notes",
        "a/deep/code.py": b"x = 1",
        "top.txt": b"top",
        "a/data-00000-of-00002.jsonl": lines(RECORDS[0], {"text": "nameless"}),
        "a/settings.json": b"{\n}",
        "b/picture.png": b"\x89PNG\0\xff",
        "b/latin.txt": b"caf\xe9",
        "b/empty.txt": b"",
        ".git/config": b"hidden",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    dropped: list[Dropped] = []
    assert read(root, drop=dropped.append) == [
        EXPECTED[0],
        Document("a/data-00000-of-00002.jsonl:2", "nameless", "data"),
        Document("a/deep/code.py", "x = 1", "a"),
        Document("a/settings.json", "{\n}", "a"),
        Document("b/notes.md", "# Notes", "b"),
        Document("top.txt", "top", "root"),
    ]
    assert dropped == [
        Dropped(None, f"{root}/b/empty.txt", "empty text"),
        Dropped(None, f"{root}/b/latin.txt", "not valid UTF-8", "byte 3"),
        Dropped(None, f"{root}/b/picture.png", "not a text file"),
    ]
    with pytest.raises(InputError, match=r"latin\.txt: not valid UTF-8 \(byte 3\); mend the file"):
        read(root / "b" / "latin.txt")


def test_notes_of_a_saved_data_set_are_no_documents(tmp_path: Path) -> None:
    for name, data in {
        "dataset_dict.json": b"{}",
        "train/data-00000-of-00001.arrow": arrow(),
        "train/dataset_info.json": b"{}",
        "train/state.json": b"{}",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert read(tmp_path) == EXPECTED


@pytest.mark.parametrize(("line", "reason"), FLAWS.items())
def test_flawed_line_stops_or_is_dropped(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(GOOD, line, b'{"text": "after"}'))
    with pytest.raises(InputError, match=rf"web\.jsonl:2: {reason}.*--on-error skip"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["good", "after"]
    assert [(d.id, d.where, d.reason) for d in dropped] == [(None, f"{path}:2", reason)]


@pytest.mark.parametrize(
    ("row", "reason", "after"),
    [
        (b"only one", "wrong number of columns", 1),
        (b"x,y,z", "wrong number of columns", 1),
        (b"x,caf\xe9", "not valid UTF-8", 1),
        (b'x,"so" it said', "misplaced quote or line end", 1),
        (b'x,"open', "unclosed quote", 0),
        (b"x,", "empty text", 1),
    ],
)
def test_flawed_row_stops_or_is_dropped(tmp_path: Path, row: bytes, reason: str, after: int) -> None:
    path = tmp_path / "web.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n' + row + b"\n3,after\n")
    with pytest.raises(InputError, match=rf"web\.csv:4: {reason}.*--on-error skip"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["two\nlines", "after"][: 1 + after]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:4", reason)]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.arrow"])
def test_a_table_without_the_text_is_told_by_its_columns(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name])
    with pytest.raises(InputError, match=rf"{name}: no text column \('body' is not among .*text.*name its"):
        texts(path, fields=Fields(text="body"))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_bytes_that_are_no_text_cost_a_table_one_row(tmp_path: Path, name: str) -> None:
    broken = pa.array([b"good", b"\xff", b"x"], pa.binary())
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 3, broken.buffers())})
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(InputError, match=rf"{name}:2: not valid UTF-8; mend the record"):
        list(read_documents([path]))
    left_out: list[Dropped] = []
    kept = read_documents([path], Reading(on_error="skip", drop=left_out.append))
    assert [document.text for document in kept] == ["good", "x"]
    assert [(d.where, d.reason) for d in left_out] == [(f"{path}:2", "not valid UTF-8")]


def test_what_nobody_is_told_of_is_counted_in_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(GOOD, b"{", b"[]", b"{"))
    assert len(list(read_documents([path, path], Reading(on_error="skip")))) == 2
    assert capsys.readouterr().err == ("warning: 4 left out: not valid JSON, 2 left out: not a JSON object\n")
    list(read_documents([path], Reading(on_error="skip", drop=lambda dropped: None)))
    assert not capsys.readouterr().err


def test_null_and_empty_texts_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["good", None, ""]}), path)
    with pytest.raises(InputError, match=r"a\.parquet:2: no text"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["good"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:2", "no text"), (f"{path}:3", "empty text")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_archive_keeps_what_was_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"web.jsonl{suffix}"
    numbers = [{"text": str(hash((i, i)))} for i in range(20_000)]
    whole = PACKED[suffix](lines(*numbers))
    path.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(InputError, match=r"truncated or damaged archive .*mend the file"):
        texts(path)
    read, dropped = skipping(path)
    assert len(read) > 10_000
    assert read == [record["text"] for record in numbers[: len(read)]]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{path}:{len(read) + 1}", "truncated or damaged archive")
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    {
        "a.jsonl.gz": "damaged",
        "a.csv.zst": "damaged",
        "a.parquet": "unreadable parquet",
        "a.arrow": "unreadable parquet or Arrow",
    }.items(),
)
def test_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_bytes(b"plain text, and no archive at all")
    with pytest.raises(InputError, match=reason):
        texts(tmp_path / name)


def test_truncated_tables(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow"):
        path = tmp_path / name
        path.write_bytes(FORMATS[name][:-30])
        with pytest.raises(InputError, match=f"{name}.*unreadable"):
            texts(path)


def test_an_unreadable_file_among_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(lines({"text": name}))
    (tmp_path / "nothing.jsonl").symlink_to(tmp_path / "absent")
    opened = records.read_lines

    def refuse(path: str, longest: int) -> Any:
        if path.endswith("b.jsonl"):
            raise PermissionError(13, "Permission denied")
        return opened(path, longest)

    monkeypatch.setattr(records, "read_lines", refuse)
    with pytest.raises(InputError, match=r"b\.jsonl: unreadable file .*Permission denied.*mend the file"):
        texts(tmp_path)
    read, dropped = skipping(tmp_path)
    assert read == ["a", "c"]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{tmp_path}/b.jsonl", "unreadable file"),
        (f"{tmp_path}/nothing.jsonl", "unreadable file"),
    ]


def test_a_file_elsewhere_may_break_off(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a.jsonl", lines(GOOD, GOOD))

    class Gone(Exception):
        """As those of HTTP clients, which are no OSError."""

    def breaking(path: str, longest: int) -> Any:
        yield GOOD
        raise Gone("connection lost")

    monkeypatch.setattr(records, "read_lines", breaking)
    try:
        with pytest.raises(InputError, match=r"a\.jsonl:2: unreadable file \(connection lost\)"):
            read("memory://bucket/a.jsonl")
        assert skipping("memory://bucket")[0] == ["good"]
    finally:
        system.store.clear()


@pytest.mark.parametrize(("name", "megabytes"), [("a.jsonl", 50), ("a.csv", 5)])
def test_a_long_record_is_read(tmp_path: Path, name: str, megabytes: int) -> None:
    text = b"word " * megabytes * 200_000
    path = tmp_path / name
    path.write_bytes(b'{"text": "%s"}\n' % text if name == "a.jsonl" else b"text\n%s\n" % text)
    assert [len(text) for text in texts(path)] == [megabytes * 1_000_000]


def test_a_record_beyond_the_limit_is_a_flaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(GOOD, {"text": "x" * 2000}, GOOD))
    table = tmp_path / "a.csv"
    table.write_bytes(b"text\ngood\n" + b"x" * 2000 + b"\ngood\n")
    for file in (path, table):
        read, dropped = skipping(file)
        assert read == ["good", "good"]
        assert [d.reason for d in dropped] == ["longer than 1 GiB"]


def test_an_error_of_who_is_told_is_not_taken_for_the_inputs(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(b"no JSON", GOOD))

    def full(dropped: Dropped) -> None:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        texts(path, on_error="skip", drop=full)


def test_documents_of_the_wrong_length_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*({"text": "x" * n, "id": n} for n in (1, 5, 9))))
    dropped: list[Dropped] = []
    read = texts(path, min_characters=5, max_document_characters=8, drop=dropped.append)
    assert read == ["xxxxx"]
    assert dropped == [
        Dropped("1", f"{path}:1", "fewer than 5 characters"),
        Dropped("9", f"{path}:3", "more than 8 characters"),
    ]


def test_a_share_of_the_documents_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*({"text": f"text {n}"} for n in range(2000))))
    samples = {}
    for weight in (0.1, 0.2):
        dropped: list[Dropped] = []
        samples[weight] = texts(f"{path}:{weight}", drop=dropped.append)
        assert len(samples[weight]) + len(dropped) == 2000
        assert {d.reason for d in dropped} == {f"not in the sample of {weight}"}
        assert len(samples[weight]) == pytest.approx(2000 * weight, rel=0.2)
    assert set(samples[0.1]) < set(samples[0.2])


def test_each_part_is_read_by_itself(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_bytes(lines({"text": name}))
    found = parts([tmp_path, f"other={tmp_path}/b.jsonl"])
    documents = [list(read_part(part, Reading())) for part in found]
    assert documents == [
        [Document("a.jsonl:1", "a", "a")],
        [Document("b.jsonl:1", "b", "b")],
        [Document("b.jsonl:1", "b", "other")],
    ]


def test_missing_or_empty_paths(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        texts(tmp_path / "absent.jsonl")
    with pytest.raises(InputError, match="no document found"):
        texts(tmp_path, on_error="skip")
