"""Readers of JSON lines, csv and tsv tables, parquet and Arrow."""

import codecs
import csv
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

from loriini.sources.compressed import read_lines
from loriini.sources.files import open_binary
from loriini.sources.records import MAX_RECORD_BYTES, BadRecord, Fields, Records

BATCH_BYTES = 1 << 22
"""Bytes of parquet in memory at once, compressed and decompressed; at least one row."""


def read_json_lines(path: str, fields: Fields) -> Records:
    """JSON objects, one a line; blank lines are skipped."""
    for number, line in enumerate(read_lines(path, MAX_RECORD_BYTES), 1):
        if line.strip():
            try:
                yield number, _parse(line)
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
    small = {"pre_buffer": False, "buffer_size": BATCH_BYTES}  # otherwise whole columns are read at once
    with open_binary(path) as file, pyarrow.parquet.ParquetFile(file, **small) as table:
        columns = fields.among(table.schema_arrow.names)
        groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
        row_bytes = max([1, *(group.total_byte_size // max(1, group.num_rows) for group in groups)])
        rows = min(4096, max(1, BATCH_BYTES // row_bytes))
        yield from _numbered(table.iter_batches(batch_size=rows, columns=columns))


def read_arrow(path: str, fields: Fields) -> Records:
    """The rows of an Arrow file or stream, such as a data set saved by the datasets library."""
    with open_binary(path) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        with pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file) as reader:
            columns = fields.among(reader.schema.names)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            yield from _numbered(batch.select(columns) for batch in batches)


def _numbered(batches: Iterator[pyarrow.RecordBatch]) -> Records:
    slices = (batch.slice(start, 256) for batch in batches for start in range(0, len(batch), 256))
    return enumerate((record for rows in slices for record in _values(rows)), 1)


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
    # Invalid UTF-8 is found row by row, so that the other rows are kept.
    lines = (line.decode(errors="surrogateescape") + "\n" for line in read_lines(path, MAX_RECORD_BYTES))
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] = []
    while True:
        number = rows.line_num + 1
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
            header = [name.strip().removeprefix("\ufeff") for name in row]
            fields.among(header)


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
        return BadRecord("unclosed quote", "it includes the rest of the file")
    if "field larger" in str(error):
        return BadRecord("longer than 1 GiB", "is a quote unclosed? The rest of the file is left out")
    return BadRecord("misplaced quote or line end", f"{error}: the rest of the file is left out")


def _parse(line: bytes) -> dict[str, Any]:
    """A line's JSON object; raises BadRecord."""
    if len(line) > MAX_RECORD_BYTES:
        raise BadRecord("longer than 1 GiB", "is this JSON lines?")
    try:
        value = json.loads(line.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise BadRecord("not valid UTF-8", f"byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise BadRecord("not valid JSON", error) from None
    if not isinstance(value, dict):
        raise BadRecord("not a JSON object", f"a {type(value).__name__}")
    return value
