"""embeddings → the k most similar documents of each, and which documents nearly repeat another.

Search is exact within a cell. A small corpus is one cell; a large one is split by k-means, again and again,
until no cell is larger than 20,000 documents. Work is done in blocks of fixed size, each on one thread, so
that the result does not depend on the number of threads.

Axes: N documents, K neighbours, D embedding width, B queries in a block.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.data.artifact import Artifact, build
from loriini.data.documents import stored_documents
from loriini.progress import progress

Ids = NDArray[np.int64]
Vectors = NDArray[np.floating]

CELL = 20_000
FAN_OUT = 64
"""The most cells one k-means splits into: recursion makes the rest, at a cost that grows with log N."""
SAMPLE_PER_CELL = 256
BLOCK = 2048
COSINE = 0.95
JACCARD = 0.8
SHINGLE = 5


@dataclass(frozen=True)
class Duplicate:
    """Document `document` nearly repeats the earlier `repeats`; similarities of vectors and of shingles."""

    document: int
    repeats: int
    cosine: float
    jaccard: float


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int = 50, seed: int = 0, workers: int = 1
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, k) (int64 from 2^31 documents), -1 where there is none;
    `similarities.npy` float16 (N, k), 0 where there is none. Neighbours share their document's cell. The
    same bytes whatever the `workers` (threads).
    """

    def write(temporary: Path) -> dict[str, Any]:
        vectors_ND = np.load(embeddings.path("embeddings.npy"), mmap_mode="r")
        count = len(vectors_ND)
        dtype = np.int32 if count < 1 << 31 else np.int64
        create = np.lib.format.open_memmap
        neighbors_NK = create(temporary / "neighbors.npy", "w+", dtype, (count, k))
        similarities_NK = create(temporary / "similarities.npy", "w+", np.float16, (count, k))
        with _pool(workers) as pool, progress("neighbors", count) as advance:
            cells = split(vectors_ND, np.arange(count), seed, pool, CELL)
            for ids in cells:
                neighbors_NK[ids], similarities_NK[ids] = search(vectors_ND, ids, k, pool)
                advance(len(ids))
        neighbors_NK.flush()
        similarities_NK.flush()
        return {"documents": count, "cells": len(cells)}

    return build(folder, {"k": k, "seed": seed}, {"embeddings": embeddings.digest}, write)


def split(vectors_ND: Vectors, ids: Ids, seed: int, pool: ThreadPoolExecutor, cell: int) -> list[Ids]:
    """Cells of at most `cell` similar documents: every one of `ids` in exactly one, rising inside it."""
    if len(ids) <= cell:
        return [ids]
    parts = min(FAN_OUT, -(-2 * len(ids) // cell))
    labels = _cluster(vectors_ND, ids, parts, seed, pool)
    largest = np.bincount(labels).max()
    if largest == len(ids):  # all vectors alike: any cut is as good
        return [ids[i : i + cell] for i in range(0, len(ids), cell)]
    groups = (ids[labels == part] for part in range(parts))
    return [leaf for group in groups if len(group) for leaf in split(vectors_ND, group, seed, pool, cell)]


def search(vectors_ND: Vectors, ids: Ids, k: int, pool: ThreadPoolExecutor) -> tuple[Ids, Vectors]:
    """The `k` nearest of `ids` to each of them, without itself.

    Returns:
        int64 (len(ids), k), the nearest first, of equals the lower id first, -1 where there is none; and
        their similarities float32, 0 where there is none.
    """
    index = faiss.IndexFlatIP(vectors_ND.shape[1])
    index.add(vectors_ND[ids].astype(np.float32))
    found = _in_blocks(index, vectors_ND, ids, k + 1, pool)
    similarities, places = (np.concatenate(parts) for parts in zip(*found, strict=True))
    neighbors = np.where(places < 0, -1, ids[places])
    # itself is not always the first: another document may have the same vector
    absent = (places < 0) | (neighbors == ids[:, None])
    nearest_first = np.lexsort((neighbors, -similarities, absent))[:, :k]
    neighbors = np.where(absent, -1, neighbors)
    similarities = np.where(absent, 0, similarities)
    return np.take_along_axis(neighbors, nearest_first, 1), np.take_along_axis(similarities, nearest_first, 1)


def near_duplicates(
    similarities_NK: Vectors,
    neighbors_NK: NDArray[np.integer],
    texts: Mapping[int, str] | None = None,
    cosine: float = COSINE,
    jaccard: float = JACCARD,
) -> list[Duplicate]:
    """The documents that nearly repeat an earlier one, at most once each, by rising id.

    Candidates are neighbours with a similarity of at least `cosine`; `texts`, which needs the candidates'
    only, confirms those whose sets of 5-word shingles have a Jaccard index of at least `jaccard`
    (Broder 1997). Of a pair the lower id is kept, unless it repeats another itself.
    """

    @lru_cache(maxsize=4096)
    def shingles_of(document: int) -> frozenset[str]:
        return _shingles(texts[document]) if texts is not None else frozenset()

    found: dict[int, Duplicate] = {}
    for kept, dropped, similarity in _candidates(similarities_NK, neighbors_NK, cosine):
        if dropped not in found:
            a, b = shingles_of(kept), shingles_of(dropped)
            index = len(a & b) / len(a | b) if texts is not None else 1.0
            if index >= jaccard:
                found[dropped] = Duplicate(dropped, kept, similarity, index)
    return [found[document] for document in sorted(found)]


def write_duplicates(
    folder: Path, documents: Artifact, neighbors: Artifact, cosine: float = COSINE, jaccard: float = JACCARD
) -> Artifact:
    """Write the near-duplicates to leave out: `ids.npy` int64, and `duplicates.jsonl` with the reasons.

    Each line names the document and the one it repeats by number and by id, with both similarities.
    """

    def write(temporary: Path) -> dict[str, Any]:
        neighbors_NK = np.load(neighbors.path("neighbors.npy"), mmap_mode="r")
        similarities_NK = np.load(neighbors.path("similarities.npy"), mmap_mode="r")
        pairs = _candidates(similarities_NK, neighbors_NK, cosine)
        wanted = {document for first, second, _ in pairs for document in (first, second)}
        stored = {i: d for i, d in enumerate(stored_documents(documents)) if i in wanted} if wanted else {}
        texts = {i: document.text for i, document in stored.items()}
        found = near_duplicates(similarities_NK, neighbors_NK, texts, cosine, jaccard)
        with open(temporary / "duplicates.jsonl", "w") as file:
            for duplicate in found:
                names = {"id": stored[duplicate.document].id, "repeats_id": stored[duplicate.repeats].id}
                file.write(json.dumps({**asdict(duplicate), **names}) + "\n")
        np.save(temporary / "ids.npy", np.array([d.document for d in found], np.int64))
        return {"candidates": len(pairs), "duplicates": len(found)}

    settings = {"cosine": cosine, "jaccard": jaccard, "shingle": SHINGLE}
    return build(folder, settings, {"documents": documents.digest, "neighbors": neighbors.digest}, write)


def _candidates(
    similarities_NK: Vectors, neighbors_NK: NDArray[np.integer], cosine: float
) -> list[tuple[int, int, float]]:
    """Distinct pairs (lower id, higher id, similarity) of neighbours at least so similar, in rising order."""
    rows, columns = np.nonzero((similarities_NK >= cosine) & (neighbors_NK >= 0))
    others = neighbors_NK[rows, columns].astype(np.int64)
    pairs = np.stack([np.minimum(rows, others), np.maximum(rows, others)], 1)
    pairs, first = np.unique(pairs, axis=0, return_index=True)
    similarities = similarities_NK[rows[first], columns[first]].astype(float)
    return [(a, b, s) for (a, b), s in zip(pairs.tolist(), similarities.tolist(), strict=True)]


def _shingles(text: str) -> frozenset[str]:
    """Every run of five words; of a shorter text, all its words as one."""
    words = text.split()
    return frozenset(" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1)))


def _cluster(vectors_ND: Vectors, ids: Ids, parts: int, seed: int, pool: ThreadPoolExecutor) -> Ids:
    """Spherical k-means on a sample, then the nearest centroid of each of `ids`; labels in [0, parts)."""
    sample = np.random.default_rng(seed).permutation(len(ids))[: parts * SAMPLE_PER_CELL]
    kmeans = faiss.Kmeans(vectors_ND.shape[1], parts, niter=10, spherical=True, seed=seed)
    kmeans.train(vectors_ND[ids[np.sort(sample)]].astype(np.float32))
    found = _in_blocks(kmeans.index, vectors_ND, ids, 1, pool)
    return np.concatenate([places[:, 0] for _, places in found])


def _in_blocks(
    index: faiss.Index, vectors_ND: Vectors, ids: Ids, k: int, pool: ThreadPoolExecutor
) -> Iterator[tuple[Vectors, Ids]]:
    """(similarities, places in the index) of the `k` nearest to each of `ids`, block by block in order."""

    def find(block: Ids) -> tuple[Vectors, Ids]:
        return index.search(vectors_ND[block].astype(np.float32), k)

    return pool.map(find, [ids[i : i + BLOCK] for i in range(0, len(ids), BLOCK)])


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that search, each with one thread of its own in FAISS; here too, for k-means."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a setting of the calling thread; the pool's threads make their own
    try:
        with ThreadPoolExecutor(workers, initializer=faiss.omp_set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        faiss.omp_set_num_threads(before)
