"""Readers of JSON lines, csv and tsv tables, parquet and Arrow."""

import codecs
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pyarrow

from loriini.sources.columns import open_columns
from loriini.sources.compressed import Span, read_lines, read_lines_within
from loriini.sources.records import (
    MAX_RECORD_BYTES,
    ONE_LINE_A_RECORD,
    TOO_LONG,
    BadRecord,
    Fields,
    Records,
)

OPENED = (b"[", b"{")
"""First lines of JSON that goes over several lines."""


def read_json_lines(path: str, fields: Fields) -> Records:
    """JSON objects, one a line; blank lines are skipped."""
    return _objects(read_lines(path, MAX_RECORD_BYTES), 1)


def read_json_lines_within(path: str, span: Span, newlines_before: int) -> Records:
    """The records of a part of a file (`InputFile.span`), numbered as in the whole."""
    first = newlines_before + 2 if span[0] else 1  # the first line end belongs to the part before
    return _objects(read_lines_within(path, span, MAX_RECORD_BYTES), first)


def _objects(lines: Iterable[bytes], first: int) -> Records:
    for number, line in enumerate(lines, first):
        if line.strip():
            try:
                yield number, parse_object(line)
            except BadRecord as bad:
                yield number, bad


def read_csv(path: str, fields: Fields) -> Records:
    """The rows of a table with a header line; quoted fields may hold separators and line ends."""
    return _read_separated(path, fields, ",")


def read_tsv(path: str, fields: Fields) -> Records:
    """The rows of a table as in `read_csv`, separated by tabs."""
    return _read_separated(path, fields, "\t")


def read_parquet(path: str, fields: Fields) -> Records:
    """The rows of a parquet file, only the columns needed."""
    return _read_table(path, "parquet", fields)


def read_parquet_within(path: str, fields: Fields, row_groups: tuple[int, int], rows_before: int) -> Records:
    """The rows of a part of a parquet file (`InputFile.row_groups`), numbered as in the whole."""
    return _read_table(path, "parquet", fields, row_groups, rows_before)


def read_arrow(path: str, fields: Fields) -> Records:
    """The rows of an Arrow file or stream, such as a data set saved by the datasets library."""
    return _read_table(path, "arrow", fields)


def _read_table(
    path: str,
    form: Literal["parquet", "arrow"],
    fields: Fields,
    row_groups: tuple[int, int] | None = None,
    rows_before: int = 0,
) -> Records:
    with open_columns(path, form, fields.columns, row_groups) as table:
        fields.check_text_column(table.names)
        batches = (_values(rows) if rows else [BadRecord(TOO_LONG)] for rows in table.batches)
        yield from enumerate((record for batch in batches for record in batch), rows_before + 1)


def _values(rows: pyarrow.RecordBatch) -> list[Mapping[str, Any] | BadRecord]:
    """The rows as dictionaries. One that cannot be converted is bad; the others are still read."""
    try:
        return rows.to_pylist()
    except (ValueError, OverflowError, LookupError) as error:  # not UTF-8, or a date or time zone
        if len(rows) > 1:
            return [value for i in range(len(rows)) for value in _values(rows.slice(i, 1))]
        if isinstance(error, UnicodeDecodeError):
            return [BadRecord("not valid UTF-8")]
        return [BadRecord("a value that Python cannot hold", error)]


def _read_separated(path: str, fields: Fields, delimiter: str) -> Records:
    csv.field_size_limit(MAX_RECORD_BYTES)  # for the whole process; Python's default is 128 KiB
    lines = _RowLines(path)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        number, lines.row_bytes = rows.line_num + 1, 0
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield number, _broken_row(error)
            return  # what follows may be inside or outside of a quoted field
        if row is None:
            return
        if row and header:
            yield number, _row(header, row)
        elif row:
            header = [name.strip() for name in row]
            fields.check_text_column(header)


class _RowLines:
    """The lines of a table; csv.Error when those of one row are too long together.

    Bytes that are not UTF-8 become surrogates, so that the other rows are kept.
    """

    def __init__(self, path: str) -> None:
        self.lines, self.row_bytes = read_lines(path, MAX_RECORD_BYTES), 0

    def __iter__(self) -> Iterator[str]:
        mark = codecs.BOM_UTF8  # of the first line, and not a part of its first name
        for line in self.lines:
            if mark:
                refuse_utf16(line)
            self.row_bytes += len(line) + 1
            if self.row_bytes > MAX_RECORD_BYTES:
                raise csv.Error("field larger")
            yield line.removeprefix(mark).decode(errors="surrogateescape") + "\n"
            mark = b""


def refuse_utf16(line: bytes) -> None:
    """BadRecord for the first line of a file that begins as UTF-16."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadRecord("not valid UTF-8", "it begins as UTF-16", fix="file: convert it to UTF-8")


def _row(header: list[str], row: list[str]) -> Mapping[str, str] | BadRecord:
    if len(row) != len(header):
        return BadRecord("wrong number of columns", f"{len(row)} where the header has {len(header)}")
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return BadRecord("not valid UTF-8")
    return dict(zip(header, row, strict=True))


def _broken_row(error: csv.Error) -> BadRecord:
    if "unexpected end" in str(error):
        return BadRecord("unclosed quote, and the rest of the file")
    if "new-line character" in str(error):
        return BadRecord("misplaced quote or line end", r"a line end other than \n and \r\n", "file")
    if "field larger" in str(error):
        return BadRecord(f"{TOO_LONG}, and the rest of the file", "is a quote unclosed?")
    return BadRecord("misplaced quote or line end, and the rest of the file", error)


def parse_object(line: bytes) -> dict[str, Any]:
    """A line's JSON object; raises BadRecord."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecord(TOO_LONG, "is this JSON lines?")
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        refuse_utf16(line)
        raise BadRecord("not valid UTF-8", f"byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        if line.strip() in OPENED:
            fix = f"file: {ONE_LINE_A_RECORD}"
            raise BadRecord("not valid JSON", "a record over several lines", fix) from None
        raise BadRecord("not valid JSON", error) from None
    if isinstance(value, list):
        raise BadRecord("a JSON array", fix=f"file: {ONE_LINE_A_RECORD}")
    if not isinstance(value, dict):
        raise BadRecord("not a JSON object", f"a {type(value).__name__}")
    return value
