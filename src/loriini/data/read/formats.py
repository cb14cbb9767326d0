"""Readers of file formats, by file name: bytes to records."""

import codecs
import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from loriini.data.read.compressed import WHOLE, Span, check_bomb, open_stream, read_lines, suffixes
from loriini.data.read.files import open_binary
from loriini.data.read.records import MAX_RECORD_BYTES, TOO_LONG, BadRecord, Fields, Records
from loriini.data.read.web import read_warc

BATCH_BYTES, BATCH_ROWS = 1 << 22, 256
"""Parquet is decoded in batches of at most about this many bytes and rows, but at least one row."""
ONE_LINE_A_RECORD = "file: write each record on one line, as jq -c '.[]' does"
QUOTING = "file: write fields with quotes as in RFC 4180, or the file as JSON lines"
UNREADABLE_ARCHIVES = re.compile(r"\.(7z|br|bz2|gz|gzip|lz4|rar|tar|tbz2?|tgz|txz|xz|z|zip|zst|zstd)")
"""Suffixes of files that are packed in a way that is not read, or twice."""


def read_json_lines(
    path: str, fields: Fields, span: Span = WHOLE
) -> Iterator[tuple[int, dict[str, Any] | BadRecord]]:
    """JSON objects, one a line, numbered from the first line of the span; blank lines are skipped."""
    for number, line in enumerate(read_lines(path, span, MAX_RECORD_BYTES), 1):
        if line.strip():
            try:
                yield number, _parse_object(line)
            except BadRecord as bad:
                yield number, bad


def read_separated(path: str, fields: Fields, delimiter: str = ",") -> Records:
    """The rows of a table with a header line; quoted fields may hold separators and line ends."""
    csv.field_size_limit(MAX_RECORD_BYTES)  # for the whole process; Python's default is 128 KiB
    rows = csv.reader(_decoded_lines(path), delimiter=delimiter, strict=True)
    header: list[str] = []
    number = 1
    try:
        for row in rows:
            if row and not header:
                header = [name.strip() for name in row]
                fields.columns_of(header)
            elif row:
                yield number, _row(header, row)
            number = rows.line_num + 1
    except csv.Error as error:  # what follows may be inside or outside of a quoted field
        yield number, BadRecord("misplaced quote or line end, and the rest of the file", error, QUOTING)


def read_parquet(path: str, fields: Fields) -> Records:
    """The rows of a parquet file."""
    buffered = {"pre_buffer": False, "buffer_size": BATCH_BYTES}  # otherwise whole columns are read at once
    with open_binary(path) as file, pyarrow.parquet.ParquetFile(file, **buffered) as table:
        columns = fields.columns_of(table.schema_arrow.names)
        rows = batch_rows(table, file.seek(0, os.SEEK_END))
        yield from enumerate(_rows(table.iter_batches(rows, columns=columns)), 1)


def batch_rows(table: pyarrow.parquet.ParquetFile, size: int) -> int:
    """Rows of a parquet file of `size` bytes to decode at once; EOFError for a decompression bomb."""
    groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
    check_bomb(sum(group.total_byte_size for group in groups), size)
    row_bytes = max([1, *(group.total_byte_size // max(1, group.num_rows) for group in groups)])
    return max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))


def read_arrow(path: str, fields: Fields) -> Records:
    """The rows of an Arrow file or stream, such as a data set saved by the datasets library."""
    with open_binary(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        with pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file) as table:
            columns = fields.columns_of(table.schema.names)
            batches = map(table.get_batch, range(table.num_record_batches)) if is_file else table
            yield from enumerate(_rows(_checked(batch.select(columns)) for batch in batches), 1)


def read_text_file(path: str, fields: Fields, in_folder: bool = False) -> Records:
    """A whole text file as record 0. A file in a folder that is not text is dropped without an error."""
    fix = None if in_folder else "file"
    with open_stream(path) as stream:
        content = stream.read(MAX_RECORD_BYTES + 1)
    if suffixes(path)[0] == ".json" and _holds_records(content, fields):
        remedy = f"{ONE_LINE_A_RECORD}, and let its name end in .jsonl"
        raise BadRecord("JSON records", "they would be one document of plain text", remedy)
    if len(content) > MAX_RECORD_BYTES:
        raise BadRecord(TOO_LONG, "a text file is one document", "file")
    if b"\0" in content:
        _check_first_bytes(content)
        raise BadRecord("not a text file", fix=fix)
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise BadRecord("not valid UTF-8", f"byte {error.start}", fix) from None
    if not text.strip():
        raise BadRecord("empty text", fix=fix)
    yield 0, {fields.text: text}


READERS: dict[str, Callable[[str, Fields], Records]] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".jsonlines": read_json_lines,
    ".json": read_json_lines,
    ".csv": read_separated,
    ".tsv": partial(read_separated, delimiter="\t"),
    ".parquet": read_parquet,
    ".arrow": read_arrow,
    ".warc": read_warc,
    ".wet": read_warc,
}
"""Readers by a file's suffix (before `.gz` or `.zst`). Any other file is one document of plain text."""


def reader_of(path: str, in_folder: bool) -> Callable[[str, Fields], Records] | None:
    """The reader of a file of records; None for any other file."""
    suffix, compression = suffixes(path)
    # A .json file in a folder is far more often settings than JSON lines; settings are not compressed.
    return None if in_folder and suffix == ".json" and not compression else READERS.get(suffix)


def _parse_object(line: bytes) -> dict[str, Any]:
    """A line's JSON object; raises BadRecord."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecord(TOO_LONG, "is this JSON lines?")
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        _check_first_bytes(line)
        raise BadRecord("not valid UTF-8", f"byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        over_lines = line.strip() in (b"[", b"{")
        raise BadRecord("not valid JSON", error, ONE_LINE_A_RECORD if over_lines else "record") from None
    if isinstance(value, list):
        raise BadRecord("a JSON array", fix=ONE_LINE_A_RECORD)
    if not isinstance(value, dict):
        raise BadRecord("not a JSON object", f"a {type(value).__name__}")
    return value


def _check_first_bytes(content: bytes) -> None:
    """Raise BadRecord for content that begins with a byte order mark of UTF-16."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadRecord("not valid UTF-8", "it begins as UTF-16", "file: convert it to UTF-8")


def _holds_records(content: bytes, fields: Fields) -> bool:
    """Whether JSON text is a record with the text field, an array of them, or lines of them."""
    content = content.removeprefix(codecs.BOM_UTF8).strip()
    for part in (content, content.partition(b"\n")[0]):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        record = next(iter(value), None) if isinstance(value, list) else value
        return isinstance(record, dict) and fields.of(record)[0] is not None
    return False


def _decoded_lines(path: str) -> Iterator[str]:
    """The lines of a table. Bytes that are not UTF-8 become surrogates, so that the other rows are kept."""
    mark = codecs.BOM_UTF8  # removed from the first line: not part of the first column's name
    for line in read_lines(path, longest=MAX_RECORD_BYTES):
        if mark:
            _check_first_bytes(line)
        yield line.removeprefix(mark).decode(errors="surrogateescape") + "\n"
        mark = b""


def _row(header: list[str], row: list[str]) -> Mapping[str, str] | BadRecord:
    if len(row) != len(header):
        return BadRecord("wrong number of columns", f"{len(row)} where the header has {len(header)}")
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return BadRecord("not valid UTF-8")
    return dict(zip(header, row, strict=True))


def _rows(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[Mapping[str, Any] | BadRecord]:
    """Rows as dictionaries, one in memory at a time; a BadRecord for one that cannot be converted."""
    for batch in batches:
        names, columns = batch.schema.names, batch.columns
        for i in range(len(batch)):
            try:
                row = {name: column[i].as_py() for name, column in zip(names, columns, strict=True)}
            except UnicodeDecodeError:
                yield BadRecord("not valid UTF-8")
            except (ValueError, OverflowError, LookupError) as error:  # a date or time zone
                yield BadRecord("a value that Python cannot hold", error)
            else:
                yield row


def _checked(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """The batch; ArrowInvalid for offsets outside its buffers, which pyarrow does not check as it reads."""
    for column in batch.columns:
        is_text = pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)
        binary = pyarrow.binary() if pyarrow.types.is_string(column.type) else pyarrow.large_binary()
        (column.view(binary) if is_text else column).validate(full=True)  # invalid UTF-8 is no damage
    return batch
