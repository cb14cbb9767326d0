"""Inputs as streams of documents, one per task, each with an identity of what it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise

from loriini.common.grouping import group_by_size
from loriini.data.jobs.artifact import digest
from loriini.data.read.compressed import suffixes
from loriini.data.read.document import Document
from loriini.data.read.files import is_remote
from loriini.data.read.formats import read_json_lines, reader_of
from loriini.data.read.inputs import InputFile
from loriini.data.read.read import read_file
from loriini.data.read.records import Dropped, OnDrop, ReadOptions, count_dropped

TASK_BYTES = 1 << 26
"""Files are grouped to about this many bytes a task; larger files of JSON lines are cut into such parts."""

ReadDocuments = Callable[[OnDrop], Iterable[Document]]
"""Yields documents, and calls its argument with what it drops."""


@dataclass(frozen=True)
class DocumentStream:
    """Documents that one task reads.

    `identity` identifies the documents and how they are read: a finished task is reused as long as it stays
    the same, even if other streams change.
    """

    read: ReadDocuments
    identity: str


def file_streams(
    files: Iterable[InputFile], identity: Mapping[str, str], options: ReadOptions
) -> Iterator[DocumentStream]:
    """The streams of `files`; `identity` maps their paths to digests (`identity_of`).

    Small files share a stream. Each part of a large file after its first has a stream of its own.
    """
    # a file of unknown size is the last of its group
    groups = group_by_size(files, lambda f: TASK_BYTES if f.size is None else f.size, TASK_BYTES)
    for *others, last in groups:
        first, *more = _parts(last)  # only the last can be cut: a file of TASK_BYTES ends its group
        for group in ([*others, first], *([part] for part in more)):
            contents = [(asdict(replace(file, state={})), identity[file.path]) for file in group]
            yield DocumentStream(partial(_read, group, options), digest([contents, asdict(options)]))


def _read(files: Sequence[InputFile], options: ReadOptions, on_drop: OnDrop) -> Iterator[Document]:
    """The documents of files, one file after another; the last may be a part of a large file."""
    for file in files:
        count, dropped = count_dropped(on_drop)
        empty = True
        for document in read_file(file, options, count):
            empty = False
            yield document
        if empty and not dropped and not file.span:
            on_drop(Dropped(None, file.path, "empty file"))


def _parts(file: InputFile) -> list[InputFile]:
    """Cut a large, local, uncompressed file of JSON lines into parts of TASK_BYTES; leave others whole."""
    size = file.size or 0
    is_cut = reader_of(file.path, file.in_folder) is read_json_lines and not suffixes(file.path)[1]
    if size <= TASK_BYTES or is_remote(file.path) or not is_cut:
        return [file]
    return [replace(file, span=span) for span in pairwise([*range(0, size, TASK_BYTES), size])]
