"""Parts and inputs as streams of documents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow

from loriini.errors import InputError
from loriini.progress import warn
from loriini.sources.compressed import DAMAGE
from loriini.sources.document import Document
from loriini.sources.dropped import count_dropped, describe_dropped, ignore_dropped, no_documents
from loriini.sources.fields import BadRecord, Fields, to_document
from loriini.sources.files import is_remote, is_special
from loriini.sources.formats import read_text_file, reader_of
from loriini.sources.hub import shard_records
from loriini.sources.inputs import InputFile, input_files
from loriini.sources.options import ReadOptions
from loriini.sources.records import Records


def read_documents(inputs: Sequence[str | Path], reading: ReadOptions | None = None) -> Iterator[Document]:
    """Stream the documents of `inputs`, in the order given.

    An input is `[NAME=]PATH[:WEIGHT]`. PATH is a file, a folder walked in sorted order, a URL that fsspec
    reaches, a pattern of these, or a data set `hf:NAME`. Files are JSON lines, csv, tsv, parquet, Arrow or
    web archives, by their suffix; any other is one document of plain text. A missing id becomes
    `<file>:<line number>`; a missing domain, NAME, or the file's name up to its first dot, or the first
    folder of a text file in a folder.

    Raises InputError for a missing path, for one without any document and, with `on_error="stop"`, at the
    bad record. Every other dropped record is passed to `reading.on_drop`, by default counted in a warning at
    the end; a damaged archive yields what could be read of it.
    """
    reading = reading or ReadOptions()
    left_out = Counter[str]()
    for one in inputs:
        found = False
        drop, of_one = count_dropped(reading.on_drop)
        for document in read_files(input_files([one]), replace(reading, on_drop=drop)):
            found = True
            yield document
        if not found:
            raise no_documents(one, of_one)
        left_out += of_one
    if left_out and reading.on_drop is ignore_dropped:
        warn(describe_dropped(left_out))


def read_files(found: Iterable[InputFile], reading: ReadOptions) -> Iterator[Document]:
    """Stream the documents of some parts, one part after the other."""
    return (document for part in found for document in read_file(part, reading))


def read_file(part: InputFile, reading: ReadOptions) -> Iterator[Document]:
    """Stream one part's documents; what is left out is told to `reading`."""
    for number, record in _to_the_end(part, reading.fields):
        line = f":{number}" if number else ""
        where = (f"{part.path} (shard {part.shard[0]})" if part.shard else part.path) + line
        try:
            if isinstance(record, BadRecord):
                raise record
            document = to_document(record, reading.fields, part.name + line, part.domain)
        except BadRecord as flaw:
            reading.report(flaw, where)
        else:
            yield from reading.selected(document, where, part.weight)


def _to_the_end(part: InputFile, fields: Fields) -> Iterator[tuple[int, Mapping[str, Any] | BadRecord]]:
    """A part's records; what ends the reading early is the last of them, as a Flaw."""
    number = 0
    try:
        for number, record in _records(part, fields):
            if record is not None:
                yield number, record
    except BadRecord as flaw:
        yield number and number + 1, flaw
    except InputError:
        raise
    except Exception as error:
        # What a file elsewhere raises depends on the package that reaches it.
        if not isinstance(error, (*DAMAGE, pyarrow.ArrowException, OSError)) and not is_remote(part.path):
            raise
        yield number and number + 1, BadRecord(_what_failed(error), error, mend="file")


def _records(part: InputFile, fields: Fields) -> Records:
    if part.shard:
        return shard_records(part.path, part.shard, fields)
    if is_special(part.path):
        raise BadRecord("neither file nor folder", mend=None)
    records = reader_of(part.path, part.in_folder)
    return records(part.path, fields) if records else read_text_file(part.path, fields, part.in_folder)


def _what_failed(error: Exception) -> str:
    if isinstance(error, DAMAGE):
        return "truncated or damaged archive"
    return "unreadable parquet or Arrow" if isinstance(error, pyarrow.ArrowException) else "unreadable file"
