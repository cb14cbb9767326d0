"""Inputs → the streams of documents that tasks read, each known by what it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.jobs.artifact import digest
from loriini.jobs.tasks import group_by_size
from loriini.sources import InputFile, ReadOptions, input_files, input_identity, parse_input, read_file
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop, count_dropped
from loriini.sources.files import fingerprint, is_remote

TASK_BYTES = 1 << 26
"""Of files that one task reads: more only when one file is larger."""

Fingerprint = dict[str, Any] | None

ReadDocuments = Callable[[OnDrop], Iterable[Document]]
"""Makes documents, and tells its argument what it leaves out."""


@dataclass(frozen=True)
class DocumentStream:
    """Documents that one task reads.

    `identity` stands for them and for how they are read: what was read of them is kept as long as it stays
    the same, whatever becomes of other streams.
    """

    read: ReadDocuments
    identity: str


def open_streams(
    inputs: Sequence[str], out: Path, reading: ReadOptions
) -> tuple[list[DocumentStream], dict[str, str]]:
    """What to read, and names and hashes that stand for it.

    Raises InputError for an input that is absent or empty, or that `out`, where the documents go, lies in.
    """
    found = [part for given in inputs for part in _parts(given, out)]
    states = {part.path: _state(part) for part in found}
    identity = input_identity(inputs)
    of_all = digest(identity)
    how = [asdict(reading.fields), reading.min_characters, reading.max_document_characters]
    streams = []
    for group in group_by_size(found, _size, TASK_BYTES):
        # Not on_error: what was read under "stop" holds under "skip".
        what = [(asdict(part), identity.get(part.path, of_all)) for part in group]
        read = partial(_read, group, {part.path: states[part.path] for part in group}, reading)
        streams.append(DocumentStream(read, digest([what, how])))
    return streams, identity


def _parts(given: str, out: Path) -> list[InputFile]:
    path = Path(parse_input(given).path)
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        # its files would be read the next time
        told = f"lies inside the input {path}"
        raise InputError(f"{out}: {told}; choose another --out")
    return input_files([given])


def _size(part: InputFile) -> int:
    """A part of unknown size is a task by itself."""
    return TASK_BYTES if part.size is None else part.size


def _read(
    group: Sequence[InputFile], states: Mapping[str, Fingerprint], reading: ReadOptions, drop: OnDrop
) -> Iterator[Document]:
    """The documents of some parts; InputError for one that is no longer what it was."""
    for part in group:
        count, left_out = count_dropped(drop)
        empty = True
        for document in read_file(part, replace(reading, on_drop=count)):
            empty = False
            yield document
        if empty and not left_out:
            drop(Dropped(None, part.path, "empty file"))
        if _state(part) != states[part.path]:
            told = "changed while it was read; rerun to read it as it is now"
            raise InputError(f"{part.path}: {told}")


def _state(part: InputFile) -> Fingerprint:
    """What changes when a file of this machine does; None for what is elsewhere."""
    if part.shard or is_remote(part.path):
        return None
    try:
        return fingerprint(part.path)
    except OSError:
        return None
