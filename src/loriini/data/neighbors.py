"""embeddings → the k most similar documents of each.

Search is exact within a cell. A small corpus is one cell; a large one is split by k-means, again and again,
until no cell is larger than 20,000 documents. A cell is a task on one thread, and so is each block of a
split, so that the result does not depend on how many threads there are.

Axes: N documents, K neighbours, D embedding width, M documents of a cell.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.data.artifact import Artifact, build
from loriini.progress import progress

Ids = NDArray[np.int64]
Vectors = NDArray[np.floating]

CELL = 20_000
FAN_OUT = 64
"""The most cells one k-means splits into: recursion makes the rest, at a cost that grows with log N."""
SAMPLE_PER_CELL = 256
BLOCK = 8192


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int = 50, seed: int = 0, workers: int = 1
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, k) (int64 from 2^31 documents), -1 where there is none;
    `similarities.npy` float16 (N, k), 0 where there is none. Neighbours share their document's cell. The
    same bytes whatever the `workers` (threads); each holds one cell in memory.
    """

    def write(temporary: Path) -> dict[str, Any]:
        vectors_ND = np.load(embeddings.path("embeddings.npy"), mmap_mode="r")
        count = len(vectors_ND)
        dtype = np.int32 if count < 1 << 31 else np.int64
        create = np.lib.format.open_memmap
        neighbors_NK = create(temporary / "neighbors.npy", "w+", dtype, (count, k))
        similarities_NK = create(temporary / "similarities.npy", "w+", np.float16, (count, k))

        def fill(ids: Ids) -> int:
            neighbors_NK[ids], similarities_NK[ids] = search(vectors_ND, ids, k)
            return len(ids)

        with ThreadPoolExecutor(workers) as pool, progress("neighbors", count) as advance:
            cells = split(vectors_ND, np.arange(count), seed, pool, CELL)
            for done in pool.map(fill, cells):
                advance(done)
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


def search(vectors_ND: Vectors, ids: Ids, k: int) -> tuple[Ids, Vectors]:
    """The `k` nearest of the cell `ids` to each of them, without itself: exact, on one thread.

    Returns:
        int64 (M, k), the nearest first, of equals the lower id first, -1 where there is none; and their
        similarities float32, 0 where there is none.
    """
    vectors_MD = vectors_ND[ids].astype(np.float32)
    index = faiss.IndexFlatIP(vectors_MD.shape[1])
    index.add(vectors_MD)
    with _one_thread():
        similarities, places = index.search(vectors_MD, k + 1)
    neighbors = np.where(places < 0, -1, ids[places])
    # itself is not always the first: another document may have the same vector
    absent = (places < 0) | (neighbors == ids[:, None])
    nearest_first = np.lexsort((neighbors, -similarities, absent))[:, :k]
    neighbors = np.where(absent, -1, neighbors)
    similarities = np.where(absent, 0, similarities)
    return np.take_along_axis(neighbors, nearest_first, 1), np.take_along_axis(similarities, nearest_first, 1)


def _cluster(vectors_ND: Vectors, ids: Ids, parts: int, seed: int, pool: ThreadPoolExecutor) -> Ids:
    """Spherical k-means on a sample, then the nearest centroid of each of `ids`; labels in [0, parts)."""
    sample = np.random.default_rng(seed).permutation(len(ids))[: parts * SAMPLE_PER_CELL]
    kmeans = faiss.Kmeans(vectors_ND.shape[1], parts, niter=10, spherical=True, seed=seed)
    with _one_thread():
        kmeans.train(vectors_ND[ids[np.sort(sample)]].astype(np.float32))

    def nearest(first: int) -> Ids:
        with _one_thread():
            return kmeans.index.search(vectors_ND[ids[first : first + BLOCK]].astype(np.float32), 1)[1][:, 0]

    return np.concatenate(list(pool.map(nearest, range(0, len(ids), BLOCK))))


@contextmanager
def _one_thread() -> Iterator[None]:
    """FAISS on one thread: the order of a sum must not depend on how many there are."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a setting of the calling thread
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
