"""Inputs as streams of documents for tasks, each with an identity for what it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.jobs.artifact import digest
from loriini.jobs.tasks import group_by_size
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop, count_dropped
from loriini.sources.files import fingerprint, is_remote
from loriini.sources.inputs import InputFile, input_files, input_identity, parse_input
from loriini.sources.options import ReadOptions
from loriini.sources.read import read_file

TASK_BYTES = 1 << 26
"""Bytes of the files that one task reads; more only when one file is larger."""

ReadDocuments = Callable[[OnDrop], Iterable[Document]]
"""Yields documents, and calls its argument with what it drops."""

Fingerprint = dict[str, Any] | None


@dataclass(frozen=True)
class DocumentStream:
    """Documents that one task reads.

    `identity` identifies the documents and how they are read: a finished task is reused as long as it stays
    the same, even if other streams change.
    """

    read: ReadDocuments
    identity: str


def open_streams(
    inputs: Sequence[str], out: Path, options: ReadOptions
) -> tuple[list[DocumentStream], dict[str, str]]:
    """The streams of `inputs`, and their files' digests by path (`input_identity`).

    Raises InputError for an input that is absent or empty, or that contains the output folder `out`.
    """
    files = [file for given in inputs for file in _files_outside(given, out)]
    before = {file.path: _fingerprint(file) for file in files}
    identity = input_identity(inputs)
    of_all = digest(identity)
    how = [asdict(options.fields), options.min_characters, options.max_document_characters]
    streams = []
    for group in group_by_size(files, _size, TASK_BYTES):
        # on_error is not part of it: what was read under "stop" is valid under "skip".
        what = [(asdict(file), identity.get(file.path, of_all)) for file in group]
        read = partial(_read, group, {file.path: before[file.path] for file in group}, options)
        streams.append(DocumentStream(read, digest([what, how])))
    return streams, identity


def _files_outside(given: str, out: Path) -> list[InputFile]:
    path = Path(parse_input(given).path)
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        # its files would be read the next time
        raise InputError(f"{out}: lies inside the input {path}; choose another --out")
    return input_files([given])


def _size(file: InputFile) -> int:
    """A file of unknown size is a task by itself."""
    return TASK_BYTES if file.size is None else file.size


def _read(
    files: Sequence[InputFile], before: Mapping[str, Fingerprint], options: ReadOptions, on_drop: OnDrop
) -> Iterator[Document]:
    """The documents of several files; InputError for a file that changed."""
    for file in files:
        count, dropped = count_dropped(on_drop)
        empty = True
        for document in read_file(file, replace(options, on_drop=count)):
            empty = False
            yield document
        if empty and not dropped:
            on_drop(Dropped(None, file.path, "empty file"))
        if _fingerprint(file) != before[file.path]:
            raise InputError(f"{file.path}: changed while it was read; rerun to read it as it is now")


def _fingerprint(file: InputFile) -> Fingerprint:
    """The fingerprint of a local file; None for any other."""
    if file.shard or is_remote(file.path):
        return None
    try:
        return fingerprint(file.path)
    except OSError:
        return None
