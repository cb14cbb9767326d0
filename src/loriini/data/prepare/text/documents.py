"""The `documents` stage: distinct texts, each with a unique id.

1. A task per stream reads it into chunks, and hashes the texts and ids of each. A large file may be
   several streams.
2. One task compares the hashes: which documents repeat an earlier text, which ids an earlier id.
3. A task per chunk writes it as a shard, without repeated texts and with new ids for repeated ones.

Memory holds one chunk, and in step 2 about 80 bytes per document.

Axes: D documents read, N documents stored.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from loriini.data.prepare.text.distinct import ID_BYTES, TEXT_BYTES, repetitions, sha256, unique_id
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


@dataclass(frozen=True)
class _Chunk:
    """Documents in a file that a task of step 1 wrote; the first is number `first` of all D."""

    path: Path
    first: int
    documents: int

    def lines(self) -> Iterator[bytes]:
        return read_lines(self.path.with_suffix(".zst"))

    def array(self, name: str) -> NDArray[Any]:
        with np.load(self.path.with_suffix(".npz")) as arrays:
            return arrays[name]


def write_documents(
    folder: Path,
    streams: Iterable[DocumentStream],
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    execute: Executor = SERIAL,
) -> Artifact:
    """Build the `documents` artifact: shards of JSON lines in the order read, and `dropped.jsonl`.

    Documents with the text of an earlier one are dropped and recorded. From its second occurrence on, an id
    gets its occurrence as a suffix (`id#2`). Each stream is read by a task; if the artifact is finished, none
    is read. `settings` say how documents are read, `inputs` are names and hashes of what is read.

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
        "renamed_ids": tally["renamed_ids"],
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
            np.savez(
                folder / f"{i:05d}.npz",
                texts_D=sha256([document.text for document in batch], TEXT_BYTES),
                ids_D=sha256([document.id for document in batch], ID_BYTES),
            )
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
    """Decide what becomes of every document.

    Writes `repeats.npy`, int64 (D,): number of the stored document with the same text, -1 to keep this one;
    `numbers.npy`, int64 (D,): if it is kept, its own number among the stored;
    `occurrences.npy`, uint32 (D,): 1-based occurrence of its id among the stored, 0 if it is not kept;
    `ids.npy`, 8 bytes (N,): sorted hashes of the ids of the stored documents.
    """
    first_D, _ = repetitions(np.concatenate([chunk.array("texts_D") for chunk in chunks]))
    kept_D = first_D == np.arange(len(first_D))
    numbers_D = np.cumsum(kept_D) - 1
    np.save(folder / "repeats.npy", np.where(kept_D, -1, numbers_D[first_D]))
    np.save(folder / "numbers.npy", numbers_D)
    ids_N = np.concatenate([chunk.array("ids_D") for chunk in chunks])[kept_D]
    occurrences_D = np.zeros(len(kept_D), np.uint32)
    occurrences_D[kept_D] = repetitions(ids_N)[1]
    np.save(folder / "occurrences.npy", occurrences_D)
    np.save(folder / "ids.npy", np.sort(ids_N))
    return {}


def _rewrite(chunk: _Chunk, plan: Path, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write a chunk's kept documents under their new ids, and a record of each dropped one."""
    here = slice(chunk.first, chunk.first + chunk.documents)
    repeats, numbers, nth = (
        np.load(plan / f"{name}.npy", mmap_mode="r")[here].tolist()
        for name in ("repeats", "numbers", "occurrences")
    )
    ids_N = np.load(plan / "ids.npy", mmap_mode="r")
    tally, domains = Counter[str](), Counter[str]()
    with (
        zstandard.open(folder / "documents", "wb") as file,
        open(folder / DROPPED, "w", encoding="utf-8") as dropped,
    ):
        for i, document in enumerate(map(parse_line, chunk.lines())):
            if repeats[i] >= 0:
                detail = f"repeats document {repeats[i]}"
                _write_dropped(dropped, Dropped(document.id, None, "exact duplicate", detail))
                tally["duplicates"] += 1
            else:
                new_id = unique_id(document.id, nth[i], numbers[i], ids_N)
                file.write(document_line(replace(document, id=new_id)))
                tally["kept"] += 1
                tally["characters"] += len(document.text)
                tally["renamed_ids"] += new_id != document.id
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
