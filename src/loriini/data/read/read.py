"""Inputs as streams of documents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow

from loriini.common.errors import InputError, is_system_error
from loriini.common.progress import warn
from loriini.data.jobs.artifact import first_few
from loriini.data.read.compressed import DAMAGE
from loriini.data.read.document import Document
from loriini.data.read.dropped import count_dropped, describe_dropped, ignore_dropped, no_documents
from loriini.data.read.files import is_remote, is_special, machine_failed
from loriini.data.read.formats import begins_as_text, is_archive, read_text_file, reader_of
from loriini.data.read.hub import read_shard
from loriini.data.read.inputs import InputFile, input_files
from loriini.data.read.options import ReadOptions
from loriini.data.read.readers import read_json_lines_within, read_parquet
from loriini.data.read.records import BadRecord, Fields, Records, to_document

NOT_READABLE = (FileNotFoundError, PermissionError)
"""What opening a file raises if it is absent or may not be read."""

FIRST_FILES, FIRST_RECORDS = 10, 100
"""The files, and the records of each, in which `warn_of_absent_fields` looks."""


def read_documents(inputs: Sequence[str | Path], options: ReadOptions | None = None) -> Iterator[Document]:
    """Stream the documents of `inputs`, in the order given.

    An input is `[NAME=]PATH[:WEIGHT]`:

    - PATH is a file, a folder (its files are read in sorted order), a URL that fsspec reaches, a pattern of
      these, or a data set `hf:NAME`.
    - NAME is the domain of documents without one. By default it is that of the file's name
      (`domain_from_name`), or the first folder of a text file in a folder.
    - WEIGHT is the share of the documents to take.

    Files are JSON lines, csv, tsv, parquet, Arrow or web archives, by their suffix; any other file is one
    document of plain text. A document without an id gets the id `<file>:<line number>`. A damaged archive
    yields what can be read of it.

    Dropped documents are passed to `options.on_drop`; by default, a warning at the end counts them.

    Raises:
        InputError: a path is missing or has no documents or, with `on_error="stop"`, a record is bad.
    """
    options = options or ReadOptions()
    warn_of_absent_fields(inputs, options.fields)
    dropped = Counter[str]()
    for text in inputs:
        empty = True
        on_drop, dropped_here = count_dropped(options.on_drop)
        files = input_files([text])
        warn_of_text_next_to_records(files)
        for document in read_files(files, replace(options, on_drop=on_drop)):
            empty = False
            yield document
        if empty:
            raise no_documents(text, dropped_here)
        dropped += dropped_here
    if dropped and options.on_drop is ignore_dropped:
        warn(describe_dropped(dropped))


def warn_of_absent_fields(inputs: Sequence[str | Path], fields: Fields) -> None:
    """Warn if none of the first records has the id or domain field, unless it is the default."""
    for name, default, what in ((fields.id, Fields.id, "id"), (fields.domain, Fields.domain, "domain")):
        if name == default:
            continue
        files = list(filter(has_records, input_files(inputs)))[:FIRST_FILES]
        named = replace(Fields(), text=fields.text, id=name)
        first = (islice(_until_failure(file, named), FIRST_RECORDS) for file in files)
        records = [record for _, record in chain.from_iterable(first) if isinstance(record, Mapping)]
        if records and all(named.of(record)[1] is None for record in records):
            warn(f"the {what} field {name!r} is in none of the first records; check its name")


def warn_of_text_next_to_records(files: Iterable[InputFile]) -> None:
    """Warn of text files next to records, which are read as documents; the quickstart leaves them out."""
    if texts := text_next_to_records(files):
        warn(
            f"{first_few(texts)}: text next to records, read as documents too; to leave it out, give the "
            "other files by name or pattern"
        )


def text_next_to_records(files: Iterable[InputFile]) -> list[str]:
    """The text files, such as a README, of the folders that hold records too."""
    found = [(file.path.removesuffix(file.name), file) for file in files if file.in_folder]
    with_records = {folder for folder, file in found if has_records(file)}
    others = (file for folder, file in found if folder in with_records and not has_records(file))
    return [file.path for file in others if begins_as_text(file.path)]


def has_records(file: InputFile) -> bool:
    """Whether it holds records, as a table or JSON lines do: neither one text nor a refused archive."""
    return bool(file.shard or (not is_archive(file.path) and reader_of(file.path, file.in_folder)))


def read_files(files: Iterable[InputFile], options: ReadOptions) -> Iterator[Document]:
    """Stream the documents of several files, one file after the other."""
    return (document for file in files for document in read_file(file, options))


def read_file(file: InputFile, options: ReadOptions) -> Iterator[Document]:
    """Stream the documents of a file or shard; what is dropped is reported to `options`."""
    for number, record in _until_failure(file, options.fields):
        line = f":{number}" if number else ""
        where = (f"{file.path} (shard {file.shard[0]})" if file.shard else file.path) + line
        try:
            if isinstance(record, BadRecord):
                raise record
            document = to_document(record, options.fields, file.name + line, file.domain)
        except BadRecord as bad:
            options.report(bad, where)
        else:
            yield from options.selected(document, where, file.weight, file.name)


def _until_failure(file: InputFile, fields: Fields) -> Iterator[tuple[int, Mapping[str, Any] | BadRecord]]:
    """A file's records; an error that ends the reading is the last of them, as a BadRecord."""
    number = file.rows_before
    try:
        for number, record in _records(file, fields):
            if record is not None:
                yield number, record
    except BadRecord as bad:
        yield number and number + 1, bad
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and (file.is_part or is_system_error(error)):
            raise machine_failed(file.path, error) from None  # other tasks read the other parts of a file
        if isinstance(error, (*DAMAGE, pyarrow.ArrowException, *NOT_READABLE)):
            pass
        elif is_remote(file.path):  # its package may raise any error
            if "range requests" in str(error):
                raise InputError(
                    f"{file.path}: its server sends no parts of files; download it, and give the file"
                ) from None
            raise machine_failed(file.path, error, "the connection") from None
        elif not isinstance(error, OSError):
            raise
        yield number and number + 1, BadRecord(_failure(error), error, fix="file")


def _records(file: InputFile, fields: Fields) -> Records:
    if file.shard:
        return read_shard(file.path, file.revision, file.shard, fields)
    if file.span:
        return read_json_lines_within(file.path, file.span, file.newlines_before)
    if file.row_groups:
        return read_parquet(file.path, fields, file.row_groups, file.rows_before)
    if is_special(file.path):
        raise BadRecord("neither file nor folder", fix=None)
    reader = reader_of(file.path, file.in_folder)
    return reader(file.path, fields) if reader else read_text_file(file.path, fields, file.in_folder)


def _failure(error: Exception) -> str:
    if "too much memory" in str(error):
        return "zstd archive with a window above 128 MiB, packed with --long"
    if isinstance(error, DAMAGE):
        return "truncated or damaged archive"
    return "unreadable parquet or Arrow" if isinstance(error, pyarrow.ArrowException) else "unreadable file"
