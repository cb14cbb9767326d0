"""neighbours → which documents nearly repeat an earlier one, and are left out.

Candidates are neighbours with nearly the same vector; their texts decide, by the words they share. A run of
words is compared by its hash, so that one pass over the documents writes what is compared to disk: memory
holds some hundred bytes a candidate and nothing for the rest.

Axes: N documents, K neighbours, P pairs of candidates, C documents that are candidates.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loriini.data.artifact import Artifact, build
from loriini.data.stored import chosen_documents
from loriini.progress import progress

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Cosines = NDArray[np.floating]

HASH = np.dtype(np.uint64)
COSINE = 0.95
JACCARD = 0.8
SHINGLE = 5
BLOCK = 1 << 16
MULTIPLIER = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd (Knuth, The Art of Computer Programming, §6.4)."""


@dataclass(frozen=True)
class Pairs:
    """Distinct pairs of documents that may repeat each other, in rising order."""

    kept_P: Ids
    """The lower id of each pair."""
    dropped_P: Ids
    cosines_P: Cosines

    def __len__(self) -> int:
        return len(self.kept_P)


@dataclass(frozen=True)
class Duplicate:
    """Document `document` nearly repeats the earlier `repeats`; similarities of vectors and of shingles."""

    document: int
    repeats: int
    cosine: float
    jaccard: float


def write_duplicates(
    folder: Path, documents: Artifact, neighbors: Artifact, cosine: float = COSINE, jaccard: float = JACCARD
) -> Artifact:
    """Write the near-duplicates to leave out: `ids.npy` int64, and `duplicates.jsonl` with the reasons.

    A pair of neighbours with a cosine of at least `cosine` is a candidate; it is confirmed when the sets of
    its texts' runs of five words have a Jaccard index of at least `jaccard` (Broder 1997). Of a pair the
    earlier is kept, unless it repeats another itself. Each line names both documents by number and by id,
    with both similarities.
    """

    def write(temporary: Path) -> dict[str, Any]:
        pairs = candidates(
            np.load(neighbors.path("similarities.npy"), mmap_mode="r"),
            np.load(neighbors.path("neighbors.npy"), mmap_mode="r"),
            cosine,
        )
        ids_C = np.union1d(pairs.kept_P, pairs.dropped_P)
        hashes = temporary / "shingles.bin"
        names, offsets = _write_shingles(hashes, documents, ids_C)
        found = near_duplicates(pairs, _jaccard_indices(hashes, offsets, ids_C, pairs), jaccard)
        hashes.unlink()
        with open(temporary / "duplicates.jsonl", "w") as file:
            for duplicate in found:
                document, repeats = np.searchsorted(ids_C, (duplicate.document, duplicate.repeats))
                named = {"id": names[document], "repeats_id": names[repeats]}
                file.write(json.dumps({**asdict(duplicate), **named}) + "\n")
        np.save(temporary / "ids.npy", np.array([d.document for d in found], np.int64))
        return {"candidates": len(pairs), "duplicates": len(found)}

    settings = {"cosine": cosine, "jaccard": jaccard, "shingle": SHINGLE}
    return build(folder, settings, {"documents": documents.digest, "neighbors": neighbors.digest}, write)


def candidates(similarities_NK: Cosines, neighbors_NK: NDArray[np.integer], cosine: float = COSINE) -> Pairs:
    """The pairs of neighbours whose similarity is at least `cosine`, each once."""
    found = list(_candidates(similarities_NK, neighbors_NK, cosine))
    lower, higher, cosines = (np.concatenate(parts) for parts in zip(*found, strict=True))
    pairs, first = np.unique(np.stack([lower, higher], 1), axis=0, return_index=True)
    return Pairs(pairs[:, 0], pairs[:, 1], cosines[first])


def shingles(text: str) -> Hashes:
    """The hashes of a text's runs of five words, each once, rising; of a shorter text, of all its words."""
    words = np.array([zlib.crc32(word.encode()) for word in text.split()], np.uint64)
    size = min(SHINGLE, len(words))
    runs = np.zeros(max(len(words) - size + 1, 1), np.uint64)
    for place in range(size):
        runs = (runs ^ words[place : place + len(runs)]) * np.uint64(MULTIPLIER)
    return np.unique(runs)


def jaccard_index(a: Hashes, b: Hashes) -> float:
    """How much of two sets is common to both: |a ∩ b| / |a ∪ b|."""
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / (len(a) + len(b) - common)


def near_duplicates(pairs: Pairs, indices_P: Iterable[float], jaccard: float = JACCARD) -> list[Duplicate]:
    """The later document of each pair whose Jaccard index is high enough, at most once each, by rising id."""
    found: dict[int, Duplicate] = {}
    columns = (pairs.kept_P.tolist(), pairs.dropped_P.tolist(), pairs.cosines_P.tolist())
    for kept, dropped, cosine, index in zip(*columns, indices_P, strict=True):
        if index >= jaccard:
            found.setdefault(dropped, Duplicate(dropped, kept, cosine, index))
    return [found[document] for document in sorted(found)]


def _candidates(
    similarities_NK: Cosines, neighbors_NK: NDArray[np.integer], cosine: float
) -> Iterator[tuple[Ids, Ids, Cosines]]:
    """(lower ids, higher ids, similarities) of a block's candidates, those found from both sides twice."""
    for start in range(0, max(len(neighbors_NK), 1), BLOCK):
        similarities_BK = similarities_NK[start : start + BLOCK]
        neighbors_BK = neighbors_NK[start : start + BLOCK]
        rows, columns = np.nonzero((similarities_BK >= cosine) & (neighbors_BK >= 0))
        ids, others = rows + start, neighbors_BK[rows, columns].astype(np.int64)
        yield np.minimum(ids, others), np.maximum(ids, others), similarities_BK[rows, columns]


def _write_shingles(path: Path, documents: Artifact, ids_C: Ids) -> tuple[list[str], Ids]:
    """Write the candidates' hashes end to end; returns their names and where each begins (C + 1,)."""
    wanted_N = np.zeros(documents.counts["documents"], bool)
    wanted_N[ids_C] = True
    names, offsets = [], [0]
    with open(path, "wb") as file, progress("duplicates", len(ids_C)) as advance:
        for document in chosen_documents(documents, wanted_N):
            names.append(document.id)
            advance()
            offsets.append(offsets[-1] + file.write(shingles(document.text).tobytes()) // HASH.itemsize)
    return names, np.array(offsets)


def _jaccard_indices(path: Path, offsets: Ids, ids_C: Ids, pairs: Pairs) -> Iterator[float]:
    """The Jaccard index of each pair, from the written hashes."""
    hashes = np.memmap(path, HASH, "r") if len(pairs) else np.empty(0, HASH)
    for places in zip(
        *(np.searchsorted(ids_C, ids_P) for ids_P in (pairs.kept_P, pairs.dropped_P)), strict=True
    ):
        yield jaccard_index(*(hashes[offsets[place] : offsets[place + 1]] for place in places))
