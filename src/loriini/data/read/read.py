"""Inputs as streams of documents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow

from loriini.common.errors import InputError, first_few, is_system_error
from loriini.common.progress import warn
from loriini.data.read.compressed import suffixes
from loriini.data.read.document import Document
from loriini.data.read.files import is_remote, machine_failed
from loriini.data.read.formats import UNREADABLE_ARCHIVES, read_json_lines, read_text_file, reader_of
from loriini.data.read.inputs import InputFile, input_files
from loriini.data.read.records import (
    BadRecord,
    Dropped,
    Fields,
    OnDrop,
    ReadOptions,
    Records,
    count_dropped,
    describe_dropped,
    field_of,
    no_documents,
    to_document,
)

FIRST_FILES, FIRST_RECORDS = 10, 100
"""How many files, and records of each, `warn_of_absent_fields` looks at."""


def read_documents(
    inputs: Sequence[str | Path], options: ReadOptions | None = None, on_drop: OnDrop | None = None
) -> Iterator[Document]:
    """Stream the documents of `inputs`, in the order given.

    An input is `[NAME=]PATH`:

    - PATH is a file, a folder (its files are read in sorted order), a URL that fsspec reaches, or a pattern
      of these.
    - NAME is the domain of documents without one. By default it comes from the name of their file
      (`domain_from_name`); for a text file in a folder it is that of PATH, or of its subfolder with the file.

    Files are JSON lines, csv, tsv, parquet, Arrow or web archives, by their suffix; any other file is one
    document of plain text. A document without an id gets the id `<file>:<line number>`. A damaged archive
    yields what can be read of it.

    `on_drop` is called with every dropped record or document; without it, a warning at the end counts them.

    Raises:
        InputError: a path is missing or has no documents or, with `on_error="stop"`, a record is bad.
    """
    options = options or ReadOptions()
    found = [input_files([text]) for text in inputs]
    warn_of_absent_fields(chain.from_iterable(found), options.fields)
    dropped = Counter[str]()
    for text, files in zip(inputs, found, strict=True):
        empty = True
        count, dropped_here = count_dropped(on_drop)
        warn_of_text_next_to_records(files)
        for document in read_files(files, options, count):
            empty = False
            yield document
        if empty:
            raise no_documents(text, dropped_here)
        dropped += dropped_here
    if dropped and on_drop is None:
        warn(describe_dropped(dropped))


def warn_of_absent_fields(files: Iterable[InputFile], fields: Fields) -> None:
    """Warn if none of the first records has the id or domain field, unless it is the default."""
    first_files = list(islice(filter(has_records, files), FIRST_FILES))
    for name, default, what in ((fields.id, Fields.id, "id"), (fields.domain, Fields.domain, "domain")):
        if name == default:
            continue
        first = (islice(_until_failure(file, fields), FIRST_RECORDS) for file in first_files)
        records = [record for _, record in chain.from_iterable(first) if isinstance(record, Mapping)]
        if records and all(field_of(record, name) is None for record in records):
            warn(f"the {what} field {name!r} is in none of the first records; check its name")


def warn_of_text_next_to_records(files: Iterable[InputFile]) -> None:
    """Warn of text files next to records, such as a README, which are read as documents too."""
    if texts := text_next_to_records(files):
        warn(
            f"{first_few([file.path for file in texts])}: next to records, read as documents too; to leave "
            "them out, give the other files by name or pattern"
        )


def text_next_to_records(files: Iterable[InputFile]) -> list[InputFile]:
    """The files without records in input folders that hold records too, at any depth."""
    found = [(file.path.removesuffix(file.name), file) for file in files if file.in_folder]
    with_records = {folder for folder, file in found if has_records(file)}
    return [file for folder, file in found if folder in with_records and not has_records(file)]


def has_records(file: InputFile) -> bool:
    """Whether a file holds records, as a table or JSON lines do: neither one text nor a refused archive."""
    return reader_of(file.path, file.in_folder) is not None


def read_files(files: Iterable[InputFile], options: ReadOptions, on_drop: OnDrop) -> Iterator[Document]:
    """Stream the documents of several files, one file after the other."""
    return (document for file in files for document in read_file(file, options, on_drop))


def read_file(file: InputFile, options: ReadOptions, on_drop: OnDrop) -> Iterator[Document]:
    """Stream the documents of a file, or of a part of one; `on_drop` is called with what is dropped.

    Raises InputError for a flawed record with `on_error="stop"`.
    """
    for number, record in _until_failure(file, options.fields):
        place = file.place(number)
        try:
            if isinstance(record, BadRecord):
                raise record
            document = to_document(record, options.fields, file.name + place, file.domain)
        except BadRecord as bad:
            if options.on_error != "skip" and bad.fix:
                remedy = f"fix the {bad.fix}, or pass --on-error skip to count and skip it"
                raise InputError(f"{file.path}{place}: {' '.join(str(bad).split())}; {remedy}") from None
            on_drop(Dropped(None, file.path + place, bad.reason, bad.detail))
        else:
            if reason := options.reason_to_drop(document):
                on_drop(Dropped(document.id, file.path + place, reason))
            else:
                yield document


def _until_failure(file: InputFile, fields: Fields) -> Iterator[tuple[int, Mapping[str, Any] | BadRecord]]:
    """A file's records; an error that ends the reading is the last of them, as a BadRecord.

    InputError for a failure of the machine or the connection: skipping the file would lose good documents.
    """
    number = 0
    try:
        for number, record in _records(file, fields):
            if record is not None:
                yield number, record
    except InputError:
        raise
    except Exception as error:
        yield number and number + 1, _failure(file, error)


def _records(file: InputFile, fields: Fields) -> Records:
    if file.span:
        return read_json_lines(file.path, fields, file.span)
    if UNREADABLE_ARCHIVES.fullmatch(suffixes(file.path)[0]):
        raise BadRecord("packed in a way that is not read", "unpack it, or pack it as .gz or .zst", "file")
    reader = reader_of(file.path, file.in_folder)
    return reader(file.path, fields) if reader else read_text_file(file.path, fields, file.in_folder)


def _failure(file: InputFile, error: Exception) -> BadRecord:
    """What is wrong with a file that cannot be read; raises InputError if the file itself may be intact."""
    if isinstance(error, BadRecord):
        return error
    if is_system_error(error):
        raise machine_failed(file.path, error) from None
    is_arrow_error = type(error) is OSError and error.errno is None
    if isinstance(error, EOFError | pyarrow.ArrowException) or is_arrow_error:
        return BadRecord("truncated or damaged file", error, fix="file")
    is_absent = isinstance(error, FileNotFoundError | PermissionError)
    if is_remote(file.path) and not is_absent:  # the package that reads it may raise any error
        raise machine_failed(file.path, error, "the connection") from None
    if not isinstance(error, OSError):
        raise error
    if file.span:  # other tasks read the other parts
        raise machine_failed(file.path, error) from None
    return BadRecord("unreadable file", error, fix="file")
