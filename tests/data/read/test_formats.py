"""Records of every format as documents, good, bad and damaged."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reads import ALL, COMPRESSED, EXPECTED, GOOD, lines, read, skipping, texts, write_table

from loriini.common.errors import InputError
from loriini.data.read import formats
from loriini.data.read.records import TOO_LONG

DAMAGED = "truncated or damaged file"
REST = "misplaced quote or line end, and the rest of the file"
BAD_LINES = {
    b'{"text": "cut': "not valid JSON",
    b"[1, 2]": "a JSON array",
    b"7": "not a JSON object",
    b'{"text": "a", "domain": {"b": 1}}': "domain is not a string",
    b'{"id": "x"}': "no text",
    b'{"text": null}': "no text",
    b'{"text": " \\n"}': "empty text",
    b'{"text": 7}': "text is not a string",
    b'{"text": "caf\xe9"}': "not valid UTF-8",
    b'{"text": "\\ud800"}': "not valid Unicode",
}
BAD_ROWS = {
    b"only one": ("wrong number of columns", 1),
    b"x,caf\xe9": ("not valid UTF-8", 1),
    b"x,": ("empty text", 1),
    b'x,"so" it said': (REST, 0),
    b'x,"open': (REST, 0),
    b"x,one\rtwo": (REST, 0),
}


@pytest.mark.parametrize("name", ALL)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(ALL[name])
    assert read(path) == EXPECTED


def check_bad(path: Path, line: int, reason: str, kept: list[str]) -> None:
    """A flaw stops the reading at its line, or is dropped with its place."""
    with pytest.raises(InputError, match=rf"{path.name}:{line}: {reason}.*--on-error skip"):
        texts(path)
    read, dropped = skipping(path)
    assert read == kept
    assert [(d.id, d.where, d.reason) for d in dropped] == [(None, f"{path}:{line}", reason)]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items())
def test_a_bad_line_stops_or_is_dropped(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(GOOD, line, b'{"text": "after"}'))
    check_bad(path, 2, reason, ["good", "after"])


@pytest.mark.parametrize(("row", "expected"), BAD_ROWS.items())
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_bad_row_stops_or_is_dropped(
    tmp_path: Path, name: str, row: bytes, expected: tuple[str, int]
) -> None:
    path = tmp_path / name
    content = b'id,text\n1,"two\nlines"\n' + row + b"\n3,after\n"
    path.write_bytes(content.replace(b",", b"\t") if name == "a.tsv" else content)
    check_bad(path, 4, expected[0], ["two\nlines", "after"][: 1 + expected[1]])


def table_of(column: pa.Array, **more: Any) -> pa.Table:
    return pa.table({"text": column, **more})


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize(
    ("values", "ids", "reason"),
    [
        ([b"good", b"\xff", b"x"], None, "not valid UTF-8"),
        ([b"good", None, b"x"], None, "no text"),
        ([b"good", b"lost", b"x"], pa.array([0, 10**14, 0], pa.timestamp("s")), "a value that Python"),
        ([b"good", b"lost", b"x"], pa.array([None, b"\0", None]), "id is not a string"),
    ],
)
def test_a_bad_row_of_a_table_is_dropped_alone(
    name: str, values: list[bytes], ids: pa.Array | None, reason: str, tmp_path: Path
) -> None:
    broken = pa.array(values, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(values), broken.buffers())
    path = write_table(tmp_path / name, table_of(text, **({} if ids is None else {"id": ids})))
    read, dropped = skipping(path)
    assert read == ["good", "x"]
    assert [d.where for d in dropped] == [f"{path}:2"]
    assert dropped[0].reason.startswith(reason)
    with pytest.raises(InputError, match=rf"{name}:2: {reason}"):
        texts(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_columns_of_other_types_are_read(tmp_path: Path, name: str) -> None:
    strings = pa.array(["one", "two", "three"])
    ids = pa.array([5, None, 7]).dictionary_encode()
    for text in (strings, strings.cast(pa.string_view()), strings.dictionary_encode()):
        domain = pa.array([float("nan"), 1.0, None])  # what data frames write where there is no value
        path = write_table(tmp_path / name, table_of(text, id=ids, domain=domain))
        assert [(d.id, d.text, d.domain) for d in read(path)] == [
            ("5", "one", "a"),
            (f"{name}:2", "two", "1.0"),
            ("7", "three", "a"),
        ]


def test_a_truncated_archive_keeps_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / "web.jsonl.zst"
    numbers = [{"text": str(hash((i, i)))} for i in range(20_000)]
    whole = COMPRESSED[".zst"](lines(*numbers))
    path.write_bytes(whole[: len(whole) * 3 // 4])
    read, dropped = skipping(path)
    assert len(read) > 9_000
    assert read == [record["text"] for record in numbers[: len(read)]]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:{len(read) + 1}", DAMAGED)]


def test_offsets_that_lead_outside_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, pa.schema({"text": pa.string()})) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(["wo", "rds"])], names=["text"]))
    data = file.getvalue().replace(b"\2\0\0\0\5\0\0\0", b"\2\0\0\0\x08\0\0\0")
    assert data != file.getvalue()
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(InputError, match=DAMAGED):
        texts(tmp_path / "a.arrow")


def test_a_bomb_of_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loriini.data.read.compressed.BOMB_BYTES", 1000)
    pq.write_table(
        pa.table({"text": ["x" * 10_000_000]}),
        tmp_path / "a.parquet",
        compression="zstd",
        use_dictionary=False,
    )
    with pytest.raises(InputError, match="more than 500 times its size"):
        texts(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"[\n{}\n]", "not valid JSON .* jq -c"),
        ("a.jsonl", b'[{"text": "a"}]', "a JSON array; .* jq -c"),
        ("a.jsonl", b'{"text": "a", "domain": {}}', r"name a field, as domain\."),
        ("a.jsonl", b'{"content": "text"}\n', "--text-field"),
        ("a.jsonl", '{"text": "a"}\n'.encode("utf-16"), "UTF-16.*convert it to UTF-8"),
        ("a.csv", "text,id\na,1\n".encode("utf-16"), "UTF-16.*convert it to UTF-8"),
        ("a.txt", "a".encode("utf-16"), "UTF-16.*convert it to UTF-8"),
        ("a.jsonl.gz", b"plain", DAMAGED),
        ("a.arrow", b"ARROW1" + b"\xff" * 500, DAMAGED),
        ("a.csv", b"long " * 1000, r"'text' is not among (long ){50,60}\[...\]\).*--text-field"),
        ("a.csv", b"id;text\n1;one\n", "'text' is not among id;text"),
        ("a.csv", b"text,id,text\none,1,two\n", r"two columns of one name \(text\)"),
    ],
)
def test_what_to_fix_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        texts(path)


def test_a_record_above_the_size_limit_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_RECORD_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(GOOD, {"text": "x" * 2000}, GOOD))
    check_bad(path, 2, TOO_LONG, ["good", "good"])
    (tmp_path / "a.csv").write_bytes(b"text\ngood\n" + b"x" * 2000 + b"\ngood\n")
    check_bad(tmp_path / "a.csv", 3, REST, ["good"])
    (tmp_path / "a.txt").write_text("\ufeff" + 998 * "x")
    with pytest.raises(InputError, match=TOO_LONG):
        texts(tmp_path / "a.txt")
