"""The same three records in every format, and shorthands for reading."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from loriini.data.read.document import Document
from loriini.data.read.read import read_documents
from loriini.data.read.records import Dropped, OnDrop, ReadOptions

RECORDS = [{"id": f"d{i}", "text": f'text "{i}",\n\t{i}', "domain": "web"} for i in range(3)]
EXPECTED = [Document(**record) for record in RECORDS]
GOOD = b'{"text": "good"}'


def lines(*values: bytes | dict) -> bytes:
    return b"".join((v if isinstance(v, bytes) else json.dumps(v).encode()) + b"\n" for v in values)


def separated(delimiter: str, **form: Any) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["domain", "text", "id"], delimiter=delimiter, **form)
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
    "a.jsonlines": lines(*RECORDS),
    "a.csv": separated(","),
    "unix.csv": b"\xef\xbb\xbf" + separated(",", lineterminator="\n", quoting=csv.QUOTE_ALL),
    "a.tsv": separated("\t"),
    "a.parquet": parquet(),
    "a.arrow": arrow(),
    "file.arrow": arrow(pa.ipc.new_file),
}
COMPRESSED = {".gz": gzip.compress, ".zst": zstandard.compress}
ALL = FORMATS | {
    f"{name}{suffix}": pack(data)
    for suffix, pack in COMPRESSED.items()
    for name, data in FORMATS.items()
    if name.endswith(("l", "v"))
}


def write_table(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


def read(path: Path | str, on_drop: OnDrop | None = None, **options: Any) -> list[Document]:
    return list(read_documents([path], ReadOptions(**options), on_drop))


def texts(path: Path | str, **options: Any) -> list[str]:
    return [document.text for document in read(path, **options)]


def skipping(path: Path | str, **options: Any) -> tuple[list[str], list[Dropped]]:
    """The texts that are read with `on_error="skip"`, and what is dropped."""
    dropped: list[Dropped] = []
    return texts(path, on_error="skip", on_drop=dropped.append, **options), dropped
