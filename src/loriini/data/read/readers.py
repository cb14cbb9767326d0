"""Readers of JSON lines, csv and tsv tables, parquet and Arrow."""

import codecs
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pyarrow

from loriini.data.read.columns import open_columns
from loriini.data.read.compressed import COMPRESSED, Span, read_lines, read_lines_within
from loriini.data.read.records import (
    MAX_RECORD_BYTES,
    ONE_LINE_A_RECORD,
    TOO_LONG,
    BadRecord,
    Fields,
    Records,
)

OPENED = (b"[", b"{")
"""First lines of JSON that goes over several lines."""
SEPARATORS = {"\t": "tabs", ";": "';'", "|": "'|'", ",": "commas"}
QUOTES = {",": "record", "\t": "file: write fields with quotes as in RFC 4180, or the file as JSON lines"}
"""What to fix where a quote is misplaced: tab-separated files are often written without quoting."""


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
    """The rows of a table as in `read_csv`, separated by tabs.

    In a file without quoting, a field that begins with a quote would take in all rows up to a field that ends
    with one. Where the lines of a field may be rows, it is therefore a flaw.
    """
    return _read_separated(path, fields, "\t")


def read_parquet(
    path: str, fields: Fields, row_groups: tuple[int, int] | None = None, rows_before: int = 0
) -> Records:
    """The rows of a parquet file or of a part (`InputFile.row_groups`), numbered as in the whole."""
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
        number = rows.line_num + 1
        lines.begin_row()
        try:
            row = next(rows, None)
        except csv.Error as error:
            if not header:
                _check_separator(lines.first, delimiter)
            yield number, _broken_row(error, QUOTES[delimiter])
            return  # what follows may be inside or outside of a quoted field
        if row is None:
            return
        count = rows.line_num - number + 1
        span = f"lines {number} to {rows.line_num}" if count > 1 else ""
        if row and not header:
            header = [name.strip() for name in row]
            _check_header(header, lines.first, fields, delimiter)
            lines.tabs = len(header) - 1 if delimiter == "\t" else 0
        elif span and lines.may_be_rows(count):
            yield number, BadRecord("a quoted field that may be rows", span, QUOTES[delimiter])
        elif row:
            yield number, _row(header, row, span)


class _RowLines:
    """The lines of a table; csv.Error when those of one row are too long together.

    Bytes that are not UTF-8 become surrogates, so that the other rows are kept. `tabs` are those of a row in
    a tab-separated file, once its header is read.
    """

    def __init__(self, path: str) -> None:
        self.lines, self.tabs = read_lines(path, MAX_RECORD_BYTES), 0
        self.begin_row()

    def begin_row(self) -> None:
        self.row_bytes, self.first, self.last, self.like_rows = 0, "", "", 0

    def may_be_rows(self, count: int) -> bool:
        """Whether most of the row's lines, with the first and the last, have the `tabs` of a row."""
        ends_alike = all(line.count("\t") == self.tabs for line in (self.first, self.last))
        return ends_alike and 2 * self.like_rows >= count

    def __iter__(self) -> Iterator[str]:
        mark = codecs.BOM_UTF8  # of the first line, and not a part of its first name
        for line in self.lines:
            if mark:
                check_first_bytes(line)
            self.row_bytes += len(line) + 1
            if self.row_bytes > MAX_RECORD_BYTES:
                raise csv.Error("field larger")
            self.last = line.removeprefix(mark).decode(errors="surrogateescape") + "\n"
            self.first = self.first or self.last
            self.like_rows += bool(self.tabs) and line.count(b"\t") == self.tabs
            yield self.last
            mark = b""


def check_first_bytes(line: bytes) -> None:
    """BadRecord for the first line of a file that begins as UTF-16, or as a compressed one."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadRecord("not valid UTF-8", "it begins as UTF-16", fix="file: convert it to UTF-8")
    for suffix, beginning in COMPRESSED.items():
        if line.startswith(beginning):
            raise BadRecord(
                "not valid UTF-8", "it is compressed", fix=f"file: unpack it, or name it *{suffix}"
            )


def _check_header(header: list[str], line: str, fields: Fields, delimiter: str) -> None:
    """BadRecord without a text column; it names the separator where it is another one."""
    try:
        fields.check_text_column(header)
    except BadRecord:
        _check_separator(line, delimiter)
        raise


def _check_separator(line: str, delimiter: str) -> None:
    """BadRecord for a header without the delimiter, but with another one."""
    found = next((mark for mark in SEPARATORS if mark in line), delimiter)
    if delimiter in line or found == delimiter:
        return
    suffix = {",": ".csv", "\t": ".tsv"}
    if found in suffix:
        fix = f"file's name: {suffix[found]} in place of {suffix[delimiter]}"
    else:
        fix = "file: write it with commas, or as .tsv with tabs"
    raise BadRecord("no text column", f"its columns are separated by {SEPARATORS[found]}", fix)


def _row(header: list[str], row: list[str], span: str) -> Mapping[str, str] | BadRecord:
    if len(row) != len(header):
        detail = f"{len(row)} where the header has {len(header)}"
        more = f", in {span}: is a quote unclosed?" if span else ""
        return BadRecord("wrong number of columns", detail + more)
    try:
        "".join(row).encode()
    except UnicodeEncodeError:
        return BadRecord("not valid UTF-8")
    return dict(zip(header, row, strict=True))


def _broken_row(error: csv.Error, fix: str) -> BadRecord:
    if "unexpected end" in str(error):
        return BadRecord("unclosed quote, and the rest of the file", fix=fix)
    if "new-line character" in str(error):
        return BadRecord("misplaced quote or line end", r"a line end other than \n and \r\n", "file")
    if "field larger" in str(error):
        return BadRecord(f"{TOO_LONG}, and the rest of the file", "is a quote unclosed?", fix)
    return BadRecord("misplaced quote or line end, and the rest of the file", error, fix)


def parse_object(line: bytes) -> dict[str, Any]:
    """A line's JSON object; raises BadRecord."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecord(TOO_LONG, "is this JSON lines?")
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        check_first_bytes(line)
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
