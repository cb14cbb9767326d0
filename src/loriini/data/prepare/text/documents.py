"""The `documents` stage: distinct texts.

1. A task per stream reads it into chunks, and hashes the texts of each. A large file may be several streams.
2. One task compares the hashes: which documents repeat an earlier text.
3. A task per chunk writes it as a shard, without repeated texts.

Memory holds one chunk, and in step 2 about 80 bytes per document.

Axes: D documents read, U distinct texts.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import IO, Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from loriini.common.atomic import atomic
from loriini.common.errors import InputError, first_few
from loriini.common.grouping import group_by_size
from loriini.common.progress import Advance
from loriini.data.jobs.artifact import Artifact, build_artifact, digest, link_or_copy
from loriini.data.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks, task_counts
from loriini.data.read.compressed import read_lines
from loriini.data.read.document import Document
from loriini.data.read.records import Dropped, count_dropped, no_documents
from loriini.data.read.streams import DocumentStream, ReadDocuments

DOCUMENTS = "documents-{:05d}.jsonl.zst"
DROPPED = "dropped.jsonl"
DOMAIN_LIMIT = 1 << 16
"""A domain's index has 16 bits."""
SHARD_CHARACTERS = 1 << 25
"""A shard ends with the document that reaches this size."""
HASH_BYTES = 16
"""Texts are compared by 128 bits of their SHA-256, so that a collision cannot lose one."""


@dataclass(frozen=True)
class _Chunk:
    """Documents in a file that a task of step 1 wrote; the first is number `first` of all D."""

    path: Path
    first: int
    documents: int

    def lines(self) -> Iterator[bytes]:
        return read_lines(self.path.with_suffix(".zst"))

    def hashes(self) -> NDArray[np.bytes_]:
        hashes: NDArray[np.bytes_] = np.load(self.path.with_suffix(".npy"))
        return hashes


def write_documents(
    folder: Path,
    streams: Iterable[DocumentStream],
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    execute: Executor = SERIAL,
) -> Artifact:
    """Build the `documents` artifact: shards of JSON lines in the order read, and `dropped.jsonl`.

    Documents with the text of an earlier one are dropped and recorded. Each stream is read by a task; if the
    artifact is finished, none is read. `settings` say how documents are read, `inputs` are names and hashes
    of what is read.

    Raises:
        InputError: there are no documents, or too many domains.
    """
    inputs = inputs or {}
    write = partial(_write, streams, inputs, execute)
    return build_artifact(folder, settings, inputs, write, named_parts=True)


def document_line(document: Document) -> bytes:
    """A document as a line of JSON, which is how it is stored."""
    record = {"id": document.id, "text": document.text, "domain": document.domain}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def write_lines(path: Path, documents: Iterable[Document]) -> None:
    """Write documents to a file, each as its stored line."""
    with atomic(path) as temporary, open(temporary, "wb") as file:
        file.writelines(map(document_line, documents))


def parse_line(line: bytes) -> Document:
    """The document of a stored line."""
    return Document(**json.loads(line))


def _write(
    streams: Iterable[DocumentStream], inputs: Mapping[str, str], execute: Executor, folder: Path
) -> dict[str, Any]:
    where = first_few([str(path) for path in inputs or [folder]])
    streams = list(streams)
    reads = [
        Task(name, partial(_read, stream.read, SHARD_CHARACTERS))
        for name, stream in zip(_task_names(streams), streams, strict=True)
    ]
    read = run_tasks("read", reads, folder, execute)
    counted = list(map(task_counts, read))
    skipped = sum((Counter(counts["skipped"]) for counts in counted), Counter[str]())
    chunks = list(_chunks(read, counted))
    if not chunks:
        raise no_documents(where, skipped)
    all_read = digest([task.name for task in reads])
    compare = Task(f"plan-{all_read}", partial(_compare, chunks))
    (plan,) = run_tasks("compare", [compare], folder, execute)
    rewrites = [
        Task(f"keep-{i:05d}-{all_read}", partial(_rewrite, chunk, plan), chunk.documents)
        for i, chunk in enumerate(chunks)
    ]
    rewritten = run_tasks("documents", rewrites, folder, execute)
    tally, domains, sizes = Counter[str](), Counter[str](), list[int]()
    for counts in map(task_counts, rewritten):
        tally.update(counts["tally"])
        domains.update(counts["domains"])
        limit_domains(len(domains), where)
        sizes.append(counts["tally"].get("kept", 0))
    for i, output in enumerate(compress(rewritten, sizes)):
        link_or_copy(output / "documents", folder / DOCUMENTS.format(i))
    concatenate_files((output / DROPPED for output in (*read, *rewritten)), folder / DROPPED)
    return {
        "documents_in": sum(chunk.documents for chunk in chunks),
        "duplicates": tally["duplicates"],
        "documents": tally["kept"],
        "characters": tally["characters"],
        "domains": domains,
        "skipped": skipped,
        "shards": [size for size in sizes if size],
    }


def _task_names(streams: Iterable[DocumentStream]) -> Iterator[str]:
    """A name for each stream's task from its identity: the task is reused even if other streams change."""
    times = Counter[str]()
    for stream in streams:
        name = f"read-{digest(stream.identity)}"
        times[name] += 1
        yield f"{name}-{times[name]}" if times[name] > 1 else name


def _read(read: ReadDocuments, characters: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write a stream as chunks of about `characters`, and the hashes of its documents."""
    documents = []
    with open(folder / DROPPED, "w", encoding="utf-8") as file_of_dropped:
        drop, skipped = count_dropped(partial(_write_dropped, file_of_dropped))
        for i, batch in enumerate(group_by_size(read(drop), lambda d: len(d.text), characters)):
            with zstandard.open(folder / f"{i:05d}.zst", "wb", zstandard.ZstdCompressor(1)) as file:
                for document in batch:
                    file.write(document_line(document))
            hashes = [hashlib.sha256(document.text.encode()).digest()[:HASH_BYTES] for document in batch]
            np.save(folder / f"{i:05d}.npy", np.array(hashes, f"S{HASH_BYTES}"))
            documents.append(len(batch))
            advance(len(batch))
    return {"skipped": skipped, "documents": documents}


def _chunks(read: Iterable[Path], counted: Iterable[Mapping[str, Any]]) -> Iterator[_Chunk]:
    """The chunks that the tasks of step 1 wrote, from what each counted."""
    first = 0
    for output, counts in zip(read, counted, strict=True):
        for i, documents in enumerate(counts["documents"]):
            yield _Chunk(output / f"{i:05d}", first, documents)
            first += documents


def _compare(chunks: Sequence[_Chunk], folder: Path, advance: Advance) -> dict[str, Any]:
    """Write `repeats.npy`, int64 (D,): the number of the stored document with the same text, -1: store it."""
    hashes_D = np.concatenate([chunk.hashes() for chunk in chunks])
    _, first_U, text_D = np.unique(hashes_D, return_index=True, return_inverse=True)
    first_D = first_U[text_D]
    kept_D = first_D == np.arange(len(first_D))
    numbers_D = np.cumsum(kept_D) - 1
    np.save(folder / "repeats.npy", np.where(kept_D, -1, numbers_D[first_D]))
    return {}


def _rewrite(chunk: _Chunk, plan: Path, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write a chunk's kept documents, and a record of each dropped one."""
    repeats_D = np.load(plan / "repeats.npy", mmap_mode="r")
    repeats = repeats_D[chunk.first : chunk.first + chunk.documents].tolist()
    tally, domains = Counter[str](), Counter[str]()
    with (
        zstandard.open(folder / "documents", "wb") as file,
        open(folder / DROPPED, "w", encoding="utf-8") as dropped,
    ):
        for line, repeated in zip(chunk.lines(), repeats, strict=True):
            document = parse_line(line)
            if repeated >= 0:
                detail = f"repeats document {repeated}"
                _write_dropped(dropped, Dropped(document.id, None, "exact duplicate", detail))
                tally["duplicates"] += 1
            else:
                file.write(line + b"\n")
                tally["kept"] += 1
                tally["characters"] += len(document.text)
                domains[document.domain] += 1
    advance(chunk.documents)
    return {"tally": tally, "domains": domains}


def limit_domains(count: int, where: object) -> None:
    """InputError for more domains than 16 bits can number."""
    if count > DOMAIN_LIMIT:
        remedy = "name its input, NAME=PATH, or give a coarser --domain-field"
        raise InputError(f"{where}: more than {DOMAIN_LIMIT:,} domains; {remedy}")


def _write_dropped(file: IO[str], dropped: Dropped) -> None:
    file.write(json.dumps(asdict(dropped)) + "\n")
