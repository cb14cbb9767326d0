"""Inputs as streams of documents for tasks, each with an identity for what it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path

from loriini.common.errors import InputError, is_system_error
from loriini.common.progress import Advance
from loriini.data.jobs.artifact import digest, parts_folder
from loriini.data.jobs.tasks import Executor, Task, discard_task, group_by_size, run_tasks
from loriini.data.read.columns import read_row_groups
from loriini.data.read.compressed import DAMAGE, count_newlines, suffixes
from loriini.data.read.document import Document
from loriini.data.read.dropped import Dropped, OnDrop, count_dropped
from loriini.data.read.files import is_remote, machine_failed
from loriini.data.read.formats import reader_of
from loriini.data.read.frames import frame_starts
from loriini.data.read.inputs import InputFile, State, is_changed, states_behind
from loriini.data.read.options import ReadOptions
from loriini.data.read.read import read_file
from loriini.data.read.readers import read_json_lines, read_parquet
from loriini.data.read.records import BadRecord, Fields

TASK_BYTES = 1 << 26
"""Bytes of the files that one task reads; more only when one file is larger and is not cut."""
PART_BYTES = 1 << 26
"""Larger files of JSON lines (also zstd) or parquet are cut into parts of this size, each read by a task."""

ReadDocuments = Callable[[OnDrop], Iterable[Document]]
"""Yields documents, and calls its argument with what it drops."""


@dataclass(frozen=True)
class FunctionStream:
    """Documents that a function yields, identified by `identity`."""

    read: ReadDocuments
    identity: str
    continues = False
    stops_at_flaws = False


@dataclass(frozen=True)
class FileStream:
    """Documents of files that one task reads; the last may be a part of a large file.

    `identity` identifies the documents and how they are read: a finished task is reused as long as it stays
    the same, even if other streams change. If the stream `stops_at_flaws`, only a task that dropped none is.
    """

    files: tuple[InputFile, ...]
    states: Mapping[str, Mapping[str, State | None]]
    """For each path, the states behind the file (`states_behind`) when it was listed."""
    options: ReadOptions
    identity: str

    @property
    def continues(self) -> bool:
        """Whether the stream continues the file with which the one before it ends."""
        return self.files[-1].continues

    @property
    def stops_at_flaws(self) -> bool:
        """Whether reading ends at the first flaw."""
        return self.options.on_error == "stop"

    def read(self, on_drop: OnDrop) -> Iterator[Document]:
        """The documents; InputError if a file has changed."""
        for file in self.files:
            count, dropped = count_dropped(on_drop)
            empty = True
            for document in read_file(file, replace(self.options, on_drop=count)):
                empty = False
                yield document
            if empty and not dropped and not file.is_part:
                on_drop(Dropped(None, file.path, "empty file"))
            if is_changed(file, self.states[file.path]):
                raise InputError(f"{file.path}: changed while it was read; rerun to read it as it is now")


DocumentStream = FunctionStream | FileStream


def file_streams(
    files: Iterable[InputFile], states: Mapping[str, State], identity: Mapping[str, str], options: ReadOptions
) -> Iterator[FileStream]:
    """The streams of `files`, from their `states` (`input_states`) and digests by path (`identity_of`).

    Large files are cut when the first stream is asked for, which reads where their frames and rows begin.
    """
    digest_of_all = digest(identity)
    # on_error is not part of it: what was read without a flaw is the same under "stop" and "skip".
    settings = [asdict(options.fields), options.min_characters, options.max_document_characters]
    for group in _file_groups(files, options.fields):
        contents = [(asdict(file), identity.get(file.path, digest_of_all)) for file in group]
        group_states = {file.path: states_behind(file, states.get) for file in group}
        yield FileStream(tuple(group), group_states, options, digest([contents, settings]))


def number_lines(
    streams: Sequence[DocumentStream], temporary: Path, execute: Executor
) -> list[DocumentStream]:
    """The streams, with the number of lines before each part of a file of JSON lines; tasks count them.

    A file with a part that is damaged or cannot be read becomes one stream again: it is read up to there, and
    the error is reported once. The next attempt counts that part again, since it may have been repaired.
    """
    ends = {stream.identity: stream.files[-1] for stream in streams if isinstance(stream, FileStream)}
    parts = {name: file for name, file in ends.items() if file.span}
    tasks = [Task(f"lines-{name}", partial(_count_newlines, part)) for name, part in parts.items()]
    counted = run_tasks("lines", tasks, temporary, execute) if tasks else []
    newlines = {name: counts["newlines"] for name, counts in zip(parts, counted, strict=True)}
    for task, count in zip(tasks, newlines.values(), strict=True):
        if count is None:
            discard_task(task, parts_folder(temporary))
    damaged = {part.path for name, part in parts.items() if newlines[name] is None}
    numbered: list[DocumentStream] = []
    before = 0
    for stream in streams:
        if isinstance(stream, FunctionStream) or stream.identity not in parts:
            numbered.append(stream)
            continue
        *others, part = stream.files
        if part.path not in damaged:
            before = before if part.continues else 0
            files = (*others, replace(part, newlines_before=before))
            numbered.append(replace(stream, files=files))
            before += newlines[stream.identity]
        elif not part.continues:
            whole = digest([stream.identity, "whole"])
            numbered.append(replace(stream, files=(*others, replace(part, span=None)), identity=whole))
    return numbered


def _count_newlines(part: InputFile, folder: Path, advance: Advance) -> dict[str, int | None]:
    """Count the line ends in a part; None if it is damaged or cannot be read."""
    try:
        return {"newlines": count_newlines(part.path, part.span) if part.span else 0}
    except (OSError, *DAMAGE) as error:
        if is_system_error(error):
            raise machine_failed(part.path, error) from None
        return {"newlines": None}


def _file_groups(files: Iterable[InputFile], fields: Fields) -> Iterator[list[InputFile]]:
    """The files or parts that each task reads; each part of a file after the first has a task of its own.

    A file that is cut reaches TASK_BYTES, so it is the last of its group.
    """
    groups = list(group_by_size(files, _size, TASK_BYTES))
    with ThreadPoolExecutor() as pool:  # a parquet file's row groups are listed by another process
        cut = list(pool.map(partial(_parts, fields=fields), (group[-1] for group in groups)))
    for group, (first, *others) in zip(groups, cut, strict=True):
        yield [*group[:-1], first]
        yield from ([part] for part in others)


def _parts(file: InputFile, fields: Fields) -> list[InputFile]:
    """A large file of JSON lines or parquet on this machine in parts of PART_BYTES; any other file whole."""
    size = file.size or 0
    compression = suffixes(file.path)[1]
    if size <= PART_BYTES or is_remote(file.path) or file.shard:
        return [file]
    reader = reader_of(file.path, file.in_folder)
    if reader is read_json_lines and compression != ".gz":
        starts = _starts_of_zstd_parts(file.path) if compression else range(0, size, PART_BYTES)
        spans = pairwise([*starts, size])
        return [replace(file, span=span) for span in spans] if len(starts) > 1 else [file]
    return _parts_of_parquet(file, size, fields) if reader is read_parquet and not compression else [file]


def _starts_of_zstd_parts(path: str) -> list[int]:
    """Where parts of whole frames begin, each of PART_BYTES or more; only 0 if the file is damaged."""
    starts = [0]
    try:
        for start in islice(frame_starts(path), 1, None):
            if start - starts[-1] >= PART_BYTES:
                starts.append(start)
    except (OSError, *DAMAGE):
        return [0]  # reading it reports the error, once
    return starts


def _parts_of_parquet(file: InputFile, size: int, fields: Fields) -> list[InputFile]:
    """Parts of whole row groups, as if all rows were of one size; the whole file if it cannot be read."""
    try:
        columns, rows = read_row_groups(file.path)
        fields.check_text_column(columns)
    except BadRecord:
        return [file]  # reading it reports the error, once
    before = [0, *accumulate(rows)]
    groups = group_by_size(range(len(rows)), lambda i: size * rows[i] // max(before[-1], 1), PART_BYTES)
    parts = [
        replace(file, row_groups=(group[0], group[-1] + 1), rows_before=before[group[0]]) for group in groups
    ]
    return parts if len(parts) > 1 else [file]


def _size(file: InputFile) -> int:
    """A file's size; one of unknown size gets its own task."""
    return TASK_BYTES if file.size is None else file.size
