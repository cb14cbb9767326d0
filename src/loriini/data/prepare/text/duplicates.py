"""The `duplicates` stage: documents that nearly repeat an earlier one, to leave out of the order.

Candidates are neighbours with nearly the same vector; the share of five-word shingles in common decides. One
task finds the candidate pairs, others write the hashes of the candidates' shingles to disk, a slice of
documents each, and others compare pairs, reading two documents' hashes at a time. Memory: about 100 bytes per
pair.

Axes: N documents, K neighbours, P pairs of candidates, C documents that are candidates.
"""

import json
import zlib
from bisect import bisect_right
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.common.progress import Advance
from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.jobs.tasks import SERIAL, Executor, Task, run_tasks
from loriini.data.prepare.arrays import IDS, NEIGHBORS, SIMILARITIES, Hashes, Ids, Neighbors, Vectors
from loriini.data.prepare.text.stored import Slice, slice_documents, slices
from loriini.data.prepare.text.words import words

PAIR = np.dtype([("kept", np.int64), ("dropped", np.int64), ("cosine", np.float16)])
"""Two documents that may repeat each other, the lower number first."""
PAIRS = "pairs.npy"
CANDIDATES, DOCUMENT_IDS, HASH_OFFSETS, HASHES = "candidates.npy", "ids.json", "offsets.npy", "hashes.bin"
INDICES = "indices.npy"

HASH = np.dtype(np.uint64)
COSINE = 0.95
JACCARD = 0.8
SHINGLE = 5
ROWS_AT_ONCE = 1 << 16
PAIRS_PER_TASK = 1 << 16
MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd (Knuth, The Art of Computer Programming, §6.4)."""


def write_duplicates(
    folder: Path, documents: Artifact, neighbors: Artifact, execute: Executor = SERIAL
) -> Artifact:
    """Write the near-duplicates to leave out: `ids.npy` int64, and `duplicates.jsonl` with the reasons.

    A pair of neighbours with a cosine of at least COSINE is a candidate. It is confirmed when the sets of its
    texts' five-word shingles have a Jaccard index of at least JACCARD (Broder 1997). The later document of a
    pair is left out, even if the earlier is too. If a text has more than K near-copies, those that are not
    neighbours of an earlier one stay. A line of `duplicates.jsonl` has the numbers and ids of both documents,
    their cosine and their Jaccard index.
    """
    settings = {"cosine": COSINE, "jaccard": JACCARD, "shingle": SHINGLE}
    inputs = {"documents": documents.digest, "neighbors": neighbors.digest}
    return build_artifact(folder, settings, inputs, partial(_write, documents, neighbors, execute))


def candidates(similarities_NK: Vectors, neighbors_NK: Neighbors) -> NDArray[np.void]:
    """The pairs (P,) of neighbours whose similarity is at least COSINE, each once, sorted."""
    found, cosines = list[Ids](), list[Vectors]()
    for start in range(0, max(len(neighbors_NK), 1), ROWS_AT_ONCE):
        similarities_BK = similarities_NK[start : start + ROWS_AT_ONCE]
        neighbors_BK = neighbors_NK[start : start + ROWS_AT_ONCE]
        rows, columns = np.nonzero((similarities_BK >= COSINE) & (neighbors_BK >= 0))
        ids, others = rows + start, neighbors_BK[rows, columns].astype(np.int64)
        # lower id · N + higher id; a pair of mutual neighbours is found twice
        found.append(np.minimum(ids, others) * len(neighbors_NK) + np.maximum(ids, others))
        cosines.append(similarities_BK[rows, columns])
    codes, first = np.unique(np.concatenate(found), return_index=True)
    pairs = np.empty(len(codes), PAIR)
    pairs["kept"], pairs["dropped"] = np.divmod(codes, max(len(neighbors_NK), 1))
    pairs["cosine"] = np.concatenate(cosines)[first]
    return pairs


def shingles(text: str) -> Hashes:
    """Hashes of a text's runs of five words, unique and sorted; for a shorter text, one of all its words."""
    hashes = np.array([zlib.crc32(word.encode()) for word in words(text)], np.uint64)
    size = min(SHINGLE, len(hashes))
    runs = np.zeros(max(len(hashes) - size + 1, 1), np.uint64)
    for place in range(size):
        runs = (runs ^ hashes[place : place + len(runs)]) * np.uint64(MULTIPLIER)
    return np.unique(runs)


def jaccard_index(a: Hashes, b: Hashes) -> float:
    """|a ∩ b| / |a ∪ b| of two sets of unique hashes."""
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / (len(a) + len(b) - common)


def near_duplicates(pairs: NDArray[np.void], indices_P: NDArray[np.float64]) -> Ids:
    """Indices of the pairs whose Jaccard index is at least JACCARD.

    Only one per later document, with the lowest earlier one, in the order of the later one's number.
    """
    confirmed = np.flatnonzero(indices_P >= JACCARD)
    # pairs are sorted: a document's first pair is with the lowest number that it repeats
    _, first = np.unique(pairs["dropped"][confirmed], return_index=True)
    return confirmed[first]


def _write(documents: Artifact, neighbors: Artifact, execute: Executor, folder: Path) -> dict[str, Any]:
    (paired,) = run_tasks("candidates", [Task("pairs", partial(_find_pairs, neighbors))], folder, execute)
    pairs = np.load(paired / PAIRS, mmap_mode="r")
    run_tasks("shingles", _hash_tasks(documents, paired), folder, execute)
    bounds = pairwise([*range(0, len(pairs), PAIRS_PER_TASK), len(pairs)])
    comparing = [
        Task(f"compare-{i:05d}", partial(_compare, paired, start, stop), stop - start)
        for i, (start, stop) in enumerate(bounds)
    ]
    compared = run_tasks("duplicates", comparing, folder, execute)
    indices_P = np.concatenate([np.load(output / INDICES) for output in compared] or [np.zeros(0)])
    chosen = near_duplicates(pairs, indices_P)
    found, indices = pairs[chosen], indices_P[chosen].tolist()
    ids = _Hashed(paired).ids({*found["kept"].tolist(), *found["dropped"].tolist()})
    with open(folder / "duplicates.jsonl", "w") as file:
        for (repeats, document, cosine), index in zip(found.tolist(), indices, strict=True):
            line = {
                "document": document,
                "repeats": repeats,
                "cosine": cosine,
                "jaccard": index,
                "id": ids[document],
                "repeats_id": ids[repeats],
            }
            file.write(json.dumps(line) + "\n")
    np.save(folder / IDS, found["dropped"])
    return {"candidates": len(pairs), "duplicates": len(found)}


def _find_pairs(neighbors: Artifact, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write the candidate pairs and the sorted numbers of the documents in them."""
    pairs = candidates(neighbors.array(SIMILARITIES), neighbors.array(NEIGHBORS))
    np.save(folder / PAIRS, pairs)
    np.save(folder / CANDIDATES, np.union1d(pairs["kept"], pairs["dropped"]))
    return {"candidates": len(pairs)}


class _Hashed:
    """The candidates' hashes, read from the folders of `_hash_tasks`, next to the folder `pairs`."""

    def __init__(self, pairs: Path) -> None:
        self.folders = sorted(pairs.parent.glob("hashes-*"))  # not passed on: a pickled task holds one path
        self.firsts = [int(folder.name.removeprefix("hashes-")) for folder in self.folders]

    def of(self, document: int) -> Hashes:
        """A candidate's hashes."""
        folder = self.folders[bisect_right(self.firsts, document) - 1]
        ids_C, offsets = _index(folder)
        place = np.searchsorted(ids_C, document)
        start, stop = offsets[place : place + 2].tolist()
        return np.fromfile(folder / HASHES, HASH, stop - start, offset=start * HASH.itemsize)

    def ids(self, wanted: set[int]) -> dict[int, str]:
        """The ids of some candidates by their numbers."""
        ids: dict[int, str] = {}
        for folder in self.folders:
            numbers, read = _index(folder)[0].tolist(), json.loads((folder / DOCUMENT_IDS).read_text())
            ids |= {number: own for number, own in zip(numbers, read, strict=True) if number in wanted}
        return ids


@lru_cache(maxsize=4096)
def _index(folder: Path) -> tuple[Ids, Ids]:
    """The documents that a task hashed, and where the hashes of each begin (C + 1,)."""
    return np.load(folder / CANDIDATES), np.load(folder / HASH_OFFSETS)


def _hash_tasks(documents: Artifact, pairs: Path) -> list[Task]:
    """Tasks that each hash the candidates in a slice of documents, named by the slice's first number."""
    ids_C = np.load(pairs / CANDIDATES)
    counted = ((part, len(part.among(ids_C))) for part in slices(documents))
    return [
        Task(f"hashes-{part.first:012d}", partial(_hash_slice, documents, pairs, part), count)
        for part, count in counted
        if count
    ]


def _hash_slice(
    documents: Artifact, pairs: Path, part: Slice, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write a slice's candidates: numbers, ids, hashes end to end, and where those of each begin."""
    ids_C = part.among(np.load(pairs / CANDIDATES, mmap_mode="r"))
    chosen_S = np.zeros(len(part), bool)
    chosen_S[ids_C - part.first] = True
    ids, offsets = [], [0]
    with open(folder / HASHES, "wb") as file:
        for document in slice_documents(documents, part, chosen_S):
            ids.append(document.id)
            offsets.append(offsets[-1] + file.write(shingles(document.text).tobytes()) // HASH.itemsize)
    (folder / DOCUMENT_IDS).write_text(json.dumps(ids))
    np.save(folder / CANDIDATES, ids_C)
    np.save(folder / HASH_OFFSETS, offsets)
    advance(len(ids))
    return {"documents": len(ids)}


def _compare(pairs: Path, start: int, stop: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write the Jaccard index of each of the pairs `start` … `stop` - 1."""
    hashes_of = lru_cache(maxsize=64)(_Hashed(pairs).of)  # a document's pairs follow each other
    compared = np.load(pairs / PAIRS, mmap_mode="r")[start:stop].tolist()
    indices = [jaccard_index(hashes_of(kept), hashes_of(dropped)) for kept, dropped, _ in compared]
    np.save(folder / INDICES, indices)
    advance(len(indices))
    return {"pairs": len(indices)}
