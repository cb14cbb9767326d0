"""Inputs → the streams of documents that tasks read, each known by what it reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.jobs.artifact import digest
from loriini.jobs.tasks import grouped
from loriini.sources import Part, Reading, input_identity, parse_input, parts, read_part
from loriini.sources.document import Document, Stream
from loriini.sources.dropped import Drop, Dropped, counted
from loriini.sources.files import in_one_line, is_remote, state

TASK_BYTES = 1 << 26
"""Of files that one task reads: more only when one file is larger."""

State = dict[str, Any] | None


def open_streams(inputs: Sequence[str], out: Path, reading: Reading) -> tuple[list[Stream], dict[str, str]]:
    """What to read, and names and hashes that stand for it.

    Raises InputError for an input that is absent or empty, or that `out`, where the documents go, lies in.
    """
    found = [part for given in inputs for part in _parts(given, out)]
    states = {part.path: _state(part) for part in found}
    identity = input_identity(inputs)
    of_all = digest(identity)
    how = [asdict(reading.fields), reading.min_characters, reading.max_document_characters]
    streams = []
    for group in grouped(found, _size, TASK_BYTES):
        # Not on_error: what was read under "stop" holds under "skip".
        what = [(asdict(part), identity.get(part.path, of_all)) for part in group]
        read = partial(_read, group, {part.path: states[part.path] for part in group}, reading)
        streams.append(Stream(read, digest([what, how])))
    return streams, identity


def _parts(given: str, out: Path) -> list[Part]:
    path = Path(parse_input(given).path)
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        # its files would be read the next time
        told = f"lies inside the input {in_one_line(path)}"
        raise InputError(f"{in_one_line(out)}: {told}; choose another --out")
    return parts([given])


def _size(part: Part) -> int:
    """A part of unknown size is a task by itself."""
    return TASK_BYTES if part.size is None else part.size


def _read(
    group: Sequence[Part], states: Mapping[str, State], reading: Reading, drop: Drop
) -> Iterator[Document]:
    """The documents of some parts; InputError for one that is no longer what it was."""
    for part in group:
        count, left_out = counted(drop)
        empty = True
        for document in read_part(part, replace(reading, drop=count)):
            empty = False
            yield document
        if empty and not left_out:
            drop(Dropped(None, part.path, "empty file"))
        if _state(part) != states[part.path]:
            told = "changed while it was read; rerun to read it as it is now"
            raise InputError(f"{in_one_line(part.path)}: {told}")


def _state(part: Part) -> State:
    """What changes when a file of this machine does; None for what is elsewhere."""
    if part.shard or is_remote(part.path):
        return None
    try:
        return state(part.path)
    except OSError:
        return None
