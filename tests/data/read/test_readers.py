"""Records of every format as documents, good and bad."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from sources.reads import ALL, EXPECTED, FORMATS, GOOD, RECORDS, lines, read, skipping, texts

from loriini.common.errors import InputError
from loriini.data.read import Dropped, Fields, ReadOptions, read_documents, readers
from loriini.data.read.records import TOO_LONG

BAD_LINES = {
    b'{"text": "cut': "not valid JSON",
    b"[1, 2]": "a JSON array",
    b"7": "not a JSON object",
    b"{": "not valid JSON",
    b'{"text": "a", "domain": {"b": 1}}': "domain is not a string",
    b'{"text": "a", "id": [1]}': "id is not a string",
    b'{"id": "x"}': "no text",
    b'{"text": null}': "no text",
    b'{"text": " \\n"}': "empty text",
    b'{"text": 7}': "text is not a string",
    b'{"text": "caf\xe9"}': "not valid UTF-8",
    b'{"text": "\\ud800"}': "not valid Unicode",
}


@pytest.mark.parametrize("name", ALL)
def test_every_format_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(ALL[name])
    assert read(path) == EXPECTED


def test_several_zstd_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(zstandard.compress(lines(record)) for record in RECORDS))
    assert read(path) == EXPECTED


@pytest.mark.parametrize(("line", "reason"), BAD_LINES.items())
def test_a_bad_line_stops_or_is_dropped(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "web.jsonl"
    path.write_bytes(lines(GOOD, line, b'{"text": "after"}'))
    with pytest.raises(InputError, match=rf"web\.jsonl:2: {reason}.*--on-error skip"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["good", "after"]
    assert [(d.id, d.where, d.reason) for d in dropped] == [(None, f"{path}:2", reason)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            b"[\n{}\n]",
            r":1: not valid JSON \(a record over several lines\); fix the file: .* jq -c",
        ),
        ("a.jsonl", b'[{"text": "a"}]', r":1: a JSON array; fix the file: write each record on one line"),
        (
            "a.jsonl",
            b'{"text": "a", "domain": {}}',
            r"holds an object\); fix the record or name a field, as domain\.",
        ),
        (
            "a.csv",
            "text,id\na,1\n".encode("utf-16"),
            r"it begins as UTF-16\); fix the file: convert it to UTF-8",
        ),
        (
            "a.jsonl",
            gzip.compress(b"{}", mtime=0),
            r"it is compressed\); fix the file: unpack it, or name it \*\.gz",
        ),
        ("a.csv", zstandard.compress(b"text"), r"it is compressed\); .*: unpack it, or name it \*\.zst"),
        ("a.jsonl", b'{"text": 5}', r"field 'text' holds a number\)"),
        ("a.csv", b"long " * 1000, r"'text' is not among (long ){50,60}\[...\]\); fix the file or name"),
        ("a.txt", "a".encode("utf-16"), r"it begins as UTF-16\); fix the file: convert it to UTF-8"),
        ("a.csv", b"text,id\ra,1\r", r"a line end other than \\+n and \\+r\\+n\); fix the file"),
    ],
)
def test_what_to_fix_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        texts(path)


def test_a_record_without_the_text_field_says_how_to_name_it(tmp_path: Path) -> None:
    path = tmp_path / "web.jsonl"
    path.write_bytes(b'{"content": "text"}\n')
    with pytest.raises(InputError, match=r"fix the record or name the field of its text \(--text-field, "):
        texts(path)


@pytest.mark.parametrize(
    ("row", "reason", "after"),
    [
        (b"only one", "wrong number of columns", 1),
        (b"x,y,z", "wrong number of columns", 1),
        (b"x,caf\xe9", "not valid UTF-8", 1),
        (b'x,"so" it said', "misplaced quote or line end, and the rest of the file", 0),
        (b'x,"open', "unclosed quote, and the rest of the file", 0),
        (b"x,", "empty text", 1),
    ],
)
def test_a_bad_row_stops_or_is_dropped(tmp_path: Path, row: bytes, reason: str, after: int) -> None:
    path = tmp_path / "web.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n' + row + b"\n3,after\n")
    with pytest.raises(InputError, match=rf"web\.csv:4: {reason}.*--on-error skip"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["two\nlines", "after"][: 1 + after]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:4", reason)]


@pytest.mark.parametrize("header", ['"domain","text"', "domain,text", '"text","domain"'])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, header: str) -> None:
    """Spreadsheets write it before the first name, quoted or not."""
    path = tmp_path / "a.csv"
    values = {"domain": "birds", "text": "red beaks"}
    row = ",".join(values[name.strip('"')] for name in header.split(","))
    path.write_text(f"\ufeff{header}\n{row}\n", encoding="utf-8")
    (found,) = read_documents([path])
    assert (found.domain, found.text) == ("birds", "red beaks")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_two_columns_of_the_texts_name_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("text,id,text\none,1,two\n")
    else:
        columns = [pa.array(["one"]), pa.array(["1"]), pa.array(["two"])]
        pq.write_table(pa.Table.from_arrays(columns, names=["text", "id", "text"]), path)
    with pytest.raises(InputError, match=rf"{name}.*two columns of one name \(text\)"):
        texts(path)


def test_a_misplaced_quote_ends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,before\n2,"so" it "said\nno,document\n"\n3,after\n')
    read, dropped = skipping(path)
    assert read == ["before"]
    reason = "misplaced quote or line end, and the rest of the file"
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:3", reason)]


def test_json_lines_in_utf_16_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n', encoding="utf-16")
    with pytest.raises(InputError, match=r"begins as UTF-16.*fix the file: convert it to UTF-8"):
        texts(path)


def test_an_id_of_bytes_is_a_flaw_and_one_that_is_no_number_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "id": [b"\0", None]}), path)
    assert [d.reason for d in skipping(path)[1]] == ["id is not a string"]
    pq.write_table(pa.table({"text": ["a"], "domain": [float("nan")]}), path)
    (document,) = read_documents([path])
    assert document.domain == "a"  # the file's


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.arrow"])
def test_a_missing_text_column_is_refused_with_the_columns(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name])
    with pytest.raises(
        InputError, match=rf"{name}: no text column \('body' is not among .*text.*name the field of its"
    ):
        texts(path, fields=Fields(text="body"))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_invalid_utf8_in_a_table_drops_one_row(tmp_path: Path, name: str) -> None:
    broken = pa.array([b"good", b"\xff", b"x"], pa.binary())
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 3, broken.buffers())})
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(InputError, match=rf"{name}:2: not valid UTF-8; fix the record"):
        list(read_documents([path]))
    dropped: list[Dropped] = []
    kept = read_documents([path], ReadOptions(on_error="skip", on_drop=dropped.append))
    assert [document.text for document in kept] == ["good", "x"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:2", "not valid UTF-8")]


@pytest.mark.parametrize(("day", "kind"), [(10**14, pa.timestamp("s")), (10**8, pa.date32())])
def test_a_date_out_of_range_drops_one_row(tmp_path: Path, day: int, kind: pa.DataType) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["good", "lost"], "id": pa.array([0, day], kind)}), path)
    with pytest.raises(InputError, match=r"a\.parquet:2: a value that Python cannot hold"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["good"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:2", "a value that Python cannot hold")]


def test_null_and_empty_texts_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["good", None, ""]}), path)
    with pytest.raises(InputError, match=r"a\.parquet:2: no text"):
        texts(path)
    read, dropped = skipping(path)
    assert read == ["good"]
    assert [(d.where, d.reason) for d in dropped] == [(f"{path}:2", "no text"), (f"{path}:3", "empty text")]


@pytest.mark.parametrize(("name", "megabytes"), [("a.jsonl", 50), ("a.csv", 5)])
def test_a_long_record_is_read(tmp_path: Path, name: str, megabytes: int) -> None:
    text = b"word " * megabytes * 200_000
    path = tmp_path / name
    path.write_bytes(b'{"text": "%s"}\n' % text if name == "a.jsonl" else b"text\n%s\n" % text)
    read = texts(path, max_document_characters=50_000_000)
    assert [len(text) for text in read] == [megabytes * 1_000_000]


def test_a_record_above_the_size_limit_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_RECORD_BYTES", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(GOOD, {"text": "x" * 2000}, GOOD))
    table = tmp_path / "a.csv"
    table.write_bytes(b"text\ngood\n" + b"x" * 2000 + b"\ngood\n")
    for file, kept in ((path, 2), (table, 1)):
        read, dropped = skipping(file)
        assert read == ["good"] * kept
        assert [d.reason for d in dropped] == [
            TOO_LONG if kept == 2 else f"{TOO_LONG}, and the rest of the file"
        ]
