"""The `documents` artefact that every later stage reads: distinct texts, each with a name of its own.

It is made in three steps. Every source is read by a task into shards, beside hashes of texts and ids. One
task compares the hashes of all: which documents repeat an earlier text, which ids an earlier id. Then every
shard is written anew by a task, without the ones and with new names for the others. Memory holds a shard, and
in the second step some 60 bytes a document.

Axes: N documents stored, D documents read, P pieces they are cut into.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from loriini.corpus.distinct import first_of_text, id_hashes, new_name, number_of_id, text_hashes
from loriini.jobs import artifact
from loriini.jobs.artifact import Artifact, digest, first_few, parts_folder
from loriini.jobs.tasks import (
    SERIAL,
    Executor,
    Task,
    concatenate_files,
    group_by_size,
    link_or_copy,
    run_tasks,
)
from loriini.progress import Advance
from loriini.sources.compressed import read_lines
from loriini.sources.document import Document, split_document
from loriini.sources.dropped import Dropped, count_dropped, no_documents
from loriini.sources.files import in_one_line
from loriini.sources.streams import DocumentStream, ReadDocuments

DOCUMENTS = "documents-{:05d}.jsonl.zst"
DROPPED = "dropped.jsonl"
SHARD_CHARACTERS = 1 << 25
"""A shard ends with the document that reaches it."""
REPORT = 256
"""Documents between two moves of the progress bar."""


@dataclass(frozen=True)
class _Shard:
    """A shard as it was read, and the places of its first document and first piece among all."""

    part: Path
    number: int
    documents: int
    first: int
    first_piece: int

    def lines(self) -> Iterator[bytes]:
        return read_lines(self.part / f"{self.number:05d}.zst")

    def array(self, name: str) -> NDArray[Any]:
        """What `_describe` tells of it."""
        with np.load(self.part / f"{self.number:05d}.npz") as arrays:
            return arrays[name]


def write_documents(
    folder: Path,
    sources: ReadDocuments | Sequence[DocumentStream],
    settings: Mapping[str, Any],
    inputs: Mapping[str, str] | None = None,
    max_characters: int | None = None,
    execute: Executor = SERIAL,
) -> Artifact:
    """Build the `documents` artefact: shards of JSON lines in the order given, and `dropped.jsonl`.

    `sources` are read only when the stage is not finished; a function alone, which may hold anything, by this
    process. An exact duplicate of an earlier text is dropped and recorded; a text longer than
    `max_characters` is cut with `split_document`; the n-th document of an id gets the suffix `#n` and is
    counted. Raises InputError when there is no document.
    """
    wanted = {**settings, "max_characters": max_characters}

    def write(temporary: Path) -> dict[str, Any]:
        streams = (
            [DocumentStream(sources, digest([wanted, dict(inputs or {})]))] if callable(sources) else sources
        )
        parts = parts_folder(temporary)
        reads = [
            Task(
                f"read-{i:05d}-{digest([stream.identity, max_characters])}",
                partial(_read, stream.read, SHARD_CHARACTERS, max_characters),
            )
            for i, stream in enumerate(streams)
        ]
        read = run_tasks("read", reads, temporary, SERIAL if callable(sources) else execute)
        shards = list(_shards([parts / task.name for task in reads], read))
        if not shards:
            raise no_documents(first_few([*map(in_one_line, inputs or [folder])]), _total(read, "skipped"))
        of_all = digest([task.name for task in reads])
        plan = Task(f"plan-{of_all}", partial(_compare, shards))
        run_tasks("compare", [plan], temporary, execute)
        keeps = [
            Task(
                f"keep-{i:05d}-{of_all}",
                partial(_keep, shard, parts / plan.name, max_characters),
                shard.documents,
            )
            for i, shard in enumerate(shards)
        ]
        kept = run_tasks("documents", keeps, temporary, execute)
        filled = [task.name for task, counts in zip(keeps, kept, strict=True) if counts["domains"]]
        for i, name in enumerate(filled):
            link_or_copy(parts / name / "documents", temporary / DOCUMENTS.format(i))
        concatenate_files((parts / task.name / DROPPED for task in (*reads, *keeps)), temporary / DROPPED)
        return _counts(read, kept)

    return artifact.build_artifact(folder, wanted, inputs or {}, write, named_parts=True)


def batches(documents: Iterable[Document], characters: int) -> Iterator[list[Document]]:
    """Consecutive documents, as many as it takes to reach so many characters together."""
    return group_by_size(documents, lambda document: len(document.text), characters)


def _read(
    read: ReadDocuments, characters: int, max_characters: int | None, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write what a source has as shards of so many characters, each beside the arrays that tell of it."""
    documents, pieces = [], []
    with open(folder / DROPPED, "w", encoding="utf-8") as file_of_dropped:
        drop, skipped = count_dropped(lambda dropped: _write_dropped(file_of_dropped, dropped))
        for i, batch in enumerate(batches(read(drop), characters)):
            arrays = _describe(batch, max_characters)
            with zstandard.open(folder / f"{i:05d}.zst", "wb", zstandard.ZstdCompressor(1)) as file:
                for document in batch:
                    file.write(_line(document))
            np.savez(folder / f"{i:05d}.npz", allow_pickle=False, **arrays)
            documents.append(len(batch))
            pieces.append(len(arrays["ids_P"]))
            advance(len(batch))
    return {"skipped": skipped, "documents": documents, "pieces": pieces}


def _describe(batch: list[Document], max_characters: int | None) -> dict[str, NDArray[Any]]:
    """Of each document its text's hash and the number of its pieces, and of each piece its id's hash."""
    pieces = [_pieces(document, max_characters) for document in batch]
    return {
        "texts_D2": text_hashes([document.text for document in batch]),
        "pieces_D": np.array([len(of_one) for of_one in pieces]),
        "ids_P": id_hashes([piece.id for of_one in pieces for piece in of_one]),
    }


def _shards(parts: Sequence[Path], read: Sequence[Mapping[str, Any]]) -> Iterator[_Shard]:
    first = first_piece = 0
    for part, counts in zip(parts, read, strict=True):
        for i, (documents, pieces) in enumerate(zip(counts["documents"], counts["pieces"], strict=True)):
            yield _Shard(part, i, documents, first, first_piece)
            first += documents
            first_piece += pieces


def _compare(shards: Sequence[_Shard], folder: Path, advance: Advance) -> dict[str, Any]:
    """Write what becomes of every document and piece.

    `repeats.npy`, int64 (D,): the stored document whose text it repeats (its first piece), -1 to keep it.
    `places.npy`, int64 (P,): the piece's place among those stored.
    `numbers.npy`, uint32 (P,): 1 to keep its id, n when it is the n-th of that id.
    `known.npy`, uint64: the hashes of the ids of all pieces kept, rising.
    """
    documents = sum(shard.documents for shard in shards)
    pieces_D = _joined(shards, "pieces_D", documents)
    first_D = first_of_text(_joined(shards, "texts_D2", documents))
    kept_D = first_D == np.arange(len(first_D))
    kept_P = np.repeat(kept_D, pieces_D)
    places_P = np.cumsum(kept_P) - 1
    first_piece_D = np.cumsum(pieces_D) - pieces_D
    np.save(folder / "repeats.npy", np.where(kept_D, -1, places_P[first_piece_D[first_D]]))
    np.save(folder / "places.npy", places_P)
    del first_D, first_piece_D, places_P
    ids_P = _joined(shards, "ids_P", len(kept_P))[kept_P]
    numbers_P = np.zeros(len(kept_P), np.uint32)
    numbers_P[kept_P] = number_of_id(ids_P)
    np.save(folder / "numbers.npy", numbers_P)
    ids_P.sort()
    np.save(folder / "known.npy", ids_P)
    return {}


def _joined(shards: Sequence[_Shard], name: str, count: int) -> NDArray[Any]:
    """An array of all shards, `count` rows end to end: read once, and held once."""
    arrays = (shard.array(name) for shard in shards)
    first = next(arrays)
    joined, place = np.empty((count, *first.shape[1:]), first.dtype), 0
    for array in chain([first], arrays):
        joined[place : place + len(array)] = array
        place += len(array)
    return joined


def _keep(
    shard: _Shard, plan: Path, max_characters: int | None, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write a shard anew, as planned."""
    repeats, places, numbers, known = (
        np.load(plan / f"{name}.npy", mmap_mode="r") for name in ("repeats", "places", "numbers", "known")
    )
    piece, tally, domains = shard.first_piece, Counter[str](), Counter[str]()
    with (
        zstandard.open(folder / "documents", "wb") as file,
        open(folder / DROPPED, "w", encoding="utf-8") as dropped,
    ):
        for i, line in enumerate(shard.lines()):
            document = parse_line(line)
            pieces = _pieces(document, max_characters)
            repeated = int(repeats[shard.first + i])
            if repeated >= 0:
                reason, detail = "exact duplicate", f"repeats document {repeated}"
                _write_dropped(dropped, Dropped(document.id, None, reason, detail))
                tally["duplicates"] += 1
            else:
                tally["kept"] += 1
                tally["characters"] += len(document.text)
                domains[document.domain] += len(pieces)
                for place, part in enumerate(pieces, piece):
                    name = new_name(part.id, int(numbers[place]), int(places[place]), known)
                    tally["renamed_ids"] += name != part.id
                    file.write(_line(replace(part, id=name)))
            piece += len(pieces)
            if i % REPORT == REPORT - 1:
                advance(REPORT)
    advance(shard.documents % REPORT)
    return {"tally": tally, "domains": domains}


def _counts(read: Sequence[Mapping[str, Any]], kept: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The stage's counts; RuntimeError when a document that was read is neither stored nor dropped."""
    documents_in = sum(sum(counts["documents"]) for counts in read)
    tally, domains = _total(kept, "tally"), _total(kept, "domains")
    if tally["kept"] + tally["duplicates"] != documents_in:
        raise RuntimeError(
            f"{documents_in} documents were read, {tally['kept']} kept and {tally['duplicates']} dropped"
        )
    return {
        "documents_in": documents_in,
        "duplicates": tally["duplicates"],
        "cuts": domains.total() - tally["kept"],
        "documents": domains.total(),
        "characters": tally["characters"],
        "domains": domains,
        "renamed_ids": tally["renamed_ids"],
        "skipped": _total(read, "skipped"),
        "shards": [size for counts in kept if (size := sum(counts["domains"].values()))],
    }


def _total(counts: Sequence[Mapping[str, Any]], name: str) -> Counter[str]:
    """The sum of what tasks have counted as `name`."""
    total = Counter[str]()
    for of_one in counts:
        total.update(of_one[name])
    return total


def parse_line(line: bytes) -> Document:
    """A stored line's document."""
    return Document(**json.loads(line))


def _write_dropped(file: IO[str], dropped: Dropped) -> None:
    file.write(json.dumps(asdict(dropped)) + "\n")


def _line(document: Document) -> bytes:
    record = {"id": document.id, "text": document.text, "domain": document.domain}
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _pieces(document: Document, max_characters: int | None) -> list[Document]:
    return [document] if max_characters is None else split_document(document, max_characters)
