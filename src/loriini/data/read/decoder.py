"""A script that decodes a table in a process of its own, because a damaged file can crash it.

    python decoder.py parquet|arrow PATH COLUMNS LONGEST
    python decoder.py parquet PATH COLUMNS LONGEST START STOP
    python decoder.py row_groups PATH
    python decoder.py dataset '[NAME, CONFIG, SPLIT, COMMIT, SHARD, SHARDS]' COLUMNS LONGEST

Of a file, writes an Arrow stream of those of COLUMNS (a JSON list) that the file has, with plain values in
place of dictionaries and views; the stream's schema lists all of the file's columns. A row of more than
LONGEST bytes is replaced by an empty batch with the metadata `too_long`. START and STOP select the row groups
[START, STOP); `row_groups` writes, as JSON, the names of the columns and the rows in each row group. Of a
data set, writes JSON lines: first the number of shards or the names of columns (null where unknown), then the
rows of the shard; null for a row that is too long. An error is one line on standard error and exit code 1.
Imports nothing of this package, to start fast.
"""

import json
import os
import resource
import sys
import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NoReturn

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from pyarrow import types

BATCH_BYTES = 1 << 22
"""Bytes of parquet in memory at once, compressed and decompressed; at least one row."""
ROWS = 256
"""Rows of a batch that is sent, at most."""
MEMORY = 4 << 30
"""Bytes that the process may hold."""
BATCH_SECONDS = 60
"""CPU time until the next batch is sent."""
TOO_LONG = b"too_long"


def main(form: str, path: str, columns: str = "[]", longest: str = "0", *row_groups: str) -> None:
    """Decode the file; the arguments are those of the script."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _limit(resource.RLIMIT_DATA, MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        with os.fdopen(1, "wb", closefd=False) as out:
            if form == "dataset":
                place = json.loads(path)
                out.writelines(_data_set(*place, wanted=set(json.loads(columns)), longest=int(longest)))
                return
            with open(path, "rb") as file:
                if form == "row_groups":
                    out.write(_row_groups(file))
                    return
                batches = _READERS[form](file, set(json.loads(columns)), *map(int, row_groups))
                _send(batches, out, int(longest))
    except BrokenPipeError:
        _exit(1)
    except Exception as error:
        print(" ".join(f"{error or type(error).__name__}".split()), file=sys.stderr, flush=True)
        _exit(1)


def _send(batches: Iterator[Any], out: Any, longest: int) -> None:
    """Write the schema, the first of `batches`, then the batches, checked as far as decoding needs it."""
    _limit_time()
    schema = _plain_schema(next(batches))
    with pyarrow.ipc.new_stream(out, schema) as writer:
        too_long = pyarrow.RecordBatch.from_arrays([pyarrow.nulls(0, f.type) for f in schema], schema=schema)
        for batch in batches:
            for column in batch.columns:
                _check(column)
            for rows in _slices(batch, schema, longest):
                if rows is None:
                    writer.write_batch(too_long, custom_metadata={TOO_LONG: b""})
                else:
                    writer.write_batch(rows)
                _limit_time()


def _check(column: pyarrow.Array) -> None:
    """Raise ArrowInvalid for offsets or indices that lead outside; text may be invalid UTF-8."""
    if types.is_string(column.type):
        column = column.view(pyarrow.binary())
    elif types.is_large_string(column.type):
        column = column.view(pyarrow.large_binary())
    elif types.is_string_view(column.type):
        column = column.view(pyarrow.binary_view())
    column.validate(full=True)


def _slices(
    batch: pyarrow.RecordBatch, schema: pyarrow.Schema, longest: int
) -> Iterator[pyarrow.RecordBatch | None]:
    """The batch as `schema`, in slices of ROWS; None for a row of more than `longest` bytes."""
    for start in range(0, len(batch), ROWS):
        rows = batch.slice(start, ROWS)
        plain = _plain_rows(rows, schema, longest)
        if plain is not None:
            yield plain
        else:
            yield from (_plain_rows(rows.slice(i, 1), schema, longest) for i in range(len(rows)))


def _plain_rows(
    rows: pyarrow.RecordBatch, schema: pyarrow.Schema, longest: int
) -> pyarrow.RecordBatch | None:
    """The rows as `schema`; None if they are more than `longest` bytes, of which no copy is made.

    Sizes are those of plain columns: any slice of a dictionary or of views has the bytes of the whole column.
    """
    if sum(map(_copied_bytes, rows.columns)) > longest:
        return None
    columns = [_plain(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    plain = pyarrow.RecordBatch.from_arrays(columns, schema=schema)
    return plain if plain.nbytes <= longest else None


def _copied_bytes(column: pyarrow.Array) -> int:
    """The bytes of the texts that `_plain` copies, each as often as it occurs."""
    kind = column.type
    if types.is_dictionary(kind):
        values = column.dictionary
        return sum(_length(values[i]) for i in column.indices.drop_null().to_pylist())
    if _is_view(kind):
        return sum(map(_length, column))
    if types.is_struct(kind):
        return sum(map(_copied_bytes, column.flatten()))
    return _copied_bytes(column.flatten()) if _is_list(kind) else 0


def _length(value: pyarrow.Scalar) -> int:
    return len(value.as_buffer()) if value.is_valid and isinstance(value, pyarrow.BinaryScalar) else 0


def _plain(column: pyarrow.Array, kind: pyarrow.DataType) -> pyarrow.Array:
    """The column as `kind`, which is `_plain_type` of its type."""
    if column.type == kind:
        return column
    if types.is_struct(kind):
        inner = [_plain(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pyarrow.StructArray.from_arrays(inner, fields=list(kind), mask=column.is_null())
    if _is_list(kind):
        ends = accumulate(column.value_lengths().fill_null(0).to_pylist(), initial=0)
        inner = _plain(column.flatten(), kind.value_type)
        return type(column).from_arrays(list(ends), inner, type=kind, mask=column.is_null())
    if types.is_dictionary(column.type) and _is_view(column.type.value_type):  # Arrow has no cast of it
        found = (value.value.as_buffer() for value in column)
        texts = [None if text is None else text.to_pybytes() for text in found]
        return pyarrow.array(texts, pyarrow.large_binary()).view(kind)
    return column.cast(kind)


def _plain_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    return pyarrow.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)


def _plain_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type without dictionaries and views, except of dictionaries of lists or structs."""
    if types.is_dictionary(kind):
        return kind if types.is_nested(kind.value_type) else _plain_type(kind.value_type)
    if _is_view(kind):
        return pyarrow.large_string() if types.is_string_view(kind) else pyarrow.large_binary()
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if _is_list(kind):
        make = pyarrow.list_ if types.is_list(kind) else pyarrow.large_list
        return make(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _is_view(kind: pyarrow.DataType) -> bool:
    return types.is_string_view(kind) or types.is_binary_view(kind)


def _is_list(kind: pyarrow.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind)


def _row_groups(file: Any) -> bytes:
    _limit_time()
    with pyarrow.parquet.ParquetFile(file) as table:
        rows = [table.metadata.row_group(i).num_rows for i in range(table.num_row_groups)]
        if sum(rows) != table.metadata.num_rows:
            raise ValueError("the rows of its row groups do not add up to the file's")
        return _line({"columns": table.schema_arrow.names, "rows": rows})


def _read_parquet(
    file: Any, wanted: set[str], start: int | None = None, stop: int | None = None
) -> Iterator[Any]:
    small = {"pre_buffer": False, "buffer_size": BATCH_BYTES}  # otherwise whole columns are read at once
    with pyarrow.parquet.ParquetFile(file, **small) as table:
        names = table.schema_arrow.names
        yield _selected(table.schema_arrow, wanted)
        numbers = list(range(table.num_row_groups)[start:stop])
        groups = [table.metadata.row_group(i) for i in numbers]
        row_bytes = max([1, *(group.total_byte_size // max(1, group.num_rows) for group in groups)])
        rows = min(4096, max(1, BATCH_BYTES // row_bytes))
        columns = [name for name in names if name in wanted]
        yield from table.iter_batches(batch_size=rows, row_groups=numbers, columns=columns)


def _read_arrow(file: Any, wanted: set[str]) -> Iterator[Any]:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    with pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file) as reader:
        schema = _selected(reader.schema, wanted)
        yield schema
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        yield from (batch.select(schema.names) for batch in batches)


def _data_set(
    name: str,
    config: str | None,
    split: str,
    commit: str | None,
    shard: int | None,
    shards: int,
    *,
    wanted: set[str],
    longest: int,
) -> Iterator[bytes]:
    os.environ["USE_TORCH"] = "0"  # otherwise it imports torch, which takes longer than all the rest
    import datasets
    import tqdm

    # tqdm's bars are not shown, but a killed process would leave its lock across processes behind.
    tqdm.tqdm.set_lock(threading.RLock())
    _limit_time()
    rows = datasets.load_dataset(name, config, split=split, revision=commit, streaming=True)
    if shard is None:
        yield _line({"shards": rows.num_shards})
        return
    rows = rows.shard(num_shards=shards, index=shard)
    yield _line({"columns": rows.column_names})
    if rows.column_names:
        rows = rows.select_columns([column for column in rows.column_names if column in wanted])
    for row in rows:
        line = _line({column: value for column, value in row.items() if column in wanted})
        yield line if len(line) <= longest else b"null\n"
        _limit_time()


def _line(value: Any) -> bytes:
    """A JSON line; bytes become an object, dates and other values their text."""
    other = {bytes: lambda value: {"bytes": len(value)}}
    return json.dumps(value, default=lambda item: other.get(type(item), str)(item)).encode() + b"\n"


def _selected(schema: pyarrow.Schema, wanted: set[str]) -> pyarrow.Schema:
    """The schema of the wanted columns, with the names of all columns as metadata."""
    kept = [field for field in schema if field.name in wanted]
    return pyarrow.schema(kept, {b"columns": json.dumps(schema.names).encode()})


def _limit_time() -> None:
    """Give the next batch BATCH_SECONDS; past them the process is killed (SIGXCPU)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + BATCH_SECONDS)


def _limit(what: int, most: int) -> None:
    """Set a limit of this process, unless a lower one is in force."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _exit_with_parent() -> None:
    os.read(0, 1)  # standard input ends with the parent
    _exit(1)


def _exit(status: int) -> NoReturn:
    """Exit without the interpreter's clean-up, which Arrow's running threads can abort."""
    os._exit(status)


_READERS = {"parquet": _read_parquet, "arrow": _read_arrow}

if __name__ == "__main__":
    main(*sys.argv[1:])
    _exit(0)
