"""embeddings → the k most similar documents of each.

Search is exact within a cell. A small corpus is one cell. A large one is split by k-means: a cell answers for
its members, the documents nearest to its centroid, and searches for them in its reach, all those that have it
among their `OVERLAP` nearest centroids; so neighbours are found across borders. A reach too large for a cell
is split again. A cell is a task on one thread, and so is each block of a split: the result does not depend on
how many threads there are.

Axes: N documents, K neighbours, D embedding width, M members and R reach of a cell, P nearest centroids.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.data.artifact import Artifact, build
from loriini.progress import progress

Ids = NDArray[np.int64]
Vectors = NDArray[np.floating]

CELL = 40_000
"""The largest reach of a cell."""
EVENNESS = 5
"""Cells are unequal: a split aims at a mean reach so many times smaller, and few are split again."""
OVERLAP = 8
FAN_OUT = 1024
"""The most cells one k-means splits into: recursion makes the rest."""
SAMPLE_PER_CELL = 64
BLOCK = 8192
CELLS_WAITING = 16
"""Cells a worker is given at once, so that not all have to be in memory."""


@dataclass(frozen=True)
class Cell:
    """The documents a task answers for, and those among which it searches, its own included; both rising."""

    members_M: Ids
    reach_R: Ids


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int = 50, seed: int = 0, workers: int = 1
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, k) (int64 from 2^31 documents), -1 where there is none;
    `similarities.npy` float16 (N, k), 0 where there is none. The same bytes whatever the `workers`
    (threads); each holds one cell in memory.
    """

    def write(temporary: Path) -> dict[str, Any]:
        vectors_ND = np.load(embeddings.path("embeddings.npy"), mmap_mode="r")
        count = len(vectors_ND)
        dtype = np.int32 if count < 1 << 31 else np.int64
        create = np.lib.format.open_memmap
        neighbors_NK = create(temporary / "neighbors.npy", "w+", dtype, (count, k))
        similarities_NK = create(temporary / "similarities.npy", "w+", np.float16, (count, k))

        def fill(cell: Cell) -> int:
            members_M = cell.members_M
            neighbors_NK[members_M], similarities_NK[members_M] = search(vectors_ND, cell, k)
            return len(members_M)

        with ThreadPoolExecutor(workers) as pool, progress("neighbors", count) as advance:
            cells = split(vectors_ND, whole(count), seed, pool, CELL)
            tally = 0
            while waiting := list(islice(cells, CELLS_WAITING * workers)):
                tally += len(waiting)
                for done in pool.map(fill, waiting):
                    advance(done)
        neighbors_NK.flush()
        similarities_NK.flush()
        return {"documents": count, "cells": tally}

    return build(folder, {"k": k, "seed": seed}, {"embeddings": embeddings.digest}, write)


def whole(count: int) -> Cell:
    """All `count` documents as one cell."""
    ids = np.arange(count)
    return Cell(ids, ids)


def split(
    vectors_ND: Vectors, cell: Cell, seed: int, pool: ThreadPoolExecutor, largest: int
) -> Iterator[Cell]:
    """Cells of a reach of at most `largest` documents; every member of `cell` is a member of exactly one."""
    if len(cell.reach_R) <= largest:
        yield cell
        return
    parts = min(FAN_OUT, -(-EVENNESS * OVERLAP * len(cell.reach_R) // largest))
    labels_PR = _nearest_centroids(vectors_ND, cell, parts, seed, pool)
    labels_M = labels_PR[0, np.searchsorted(cell.reach_R, cell.members_M)]
    for label in range(parts):
        reach_R = cell.reach_R[(labels_PR == label).any(0)]
        part = Cell(cell.members_M[labels_M == label], reach_R)
        if len(part.members_M):
            alike = len(reach_R) == len(cell.reach_R)  # nothing is gained, and any cut is as good
            yield from _cut(part, largest) if alike else split(vectors_ND, part, seed, pool, largest)


def search(vectors_ND: Vectors, cell: Cell, k: int) -> tuple[Ids, Vectors]:
    """The `k` nearest in the cell's reach to each of its members, without itself: exact, on one thread.

    Returns:
        int64 (M, k), the nearest first, of equals the lower id first, -1 where there is none; and their
        similarities float32, 0 where there is none.
    """
    index = faiss.IndexFlatIP(vectors_ND.shape[1])
    index.add(vectors_ND[cell.reach_R].astype(np.float32))
    with _one_thread():
        similarities, places = index.search(vectors_ND[cell.members_M].astype(np.float32), k + 1)
    neighbors = np.where(places < 0, -1, cell.reach_R[places])
    # itself is not always the first: another document may have the same vector
    absent = (places < 0) | (neighbors == cell.members_M[:, None])
    nearest_first = np.lexsort((neighbors, -similarities, absent))[:, :k]
    neighbors = np.where(absent, -1, neighbors)
    similarities = np.where(absent, 0, similarities)
    return np.take_along_axis(neighbors, nearest_first, 1), np.take_along_axis(similarities, nearest_first, 1)


def _nearest_centroids(
    vectors_ND: Vectors, cell: Cell, parts: int, seed: int, pool: ThreadPoolExecutor
) -> NDArray[np.int16]:
    """Spherical k-means on a sample of the reach; the P centroids nearest to each document of it, (P, R)."""
    ids_R = cell.reach_R
    sample = np.random.default_rng(seed).permutation(len(ids_R))[: parts * SAMPLE_PER_CELL]
    kmeans = faiss.Kmeans(
        vectors_ND.shape[1], parts, niter=10, spherical=True, seed=seed, min_points_per_centroid=1
    )
    with _one_thread():
        kmeans.train(vectors_ND[ids_R[np.sort(sample)]].astype(np.float32))

    def nearest(start: int) -> NDArray[np.int16]:
        vectors_BD = vectors_ND[ids_R[start : start + BLOCK]].astype(np.float32)
        with _one_thread():
            return kmeans.index.search(vectors_BD, OVERLAP)[1].T.astype(np.int16)

    return np.concatenate(list(pool.map(nearest, range(0, len(ids_R), BLOCK))), axis=1)


def _cut(cell: Cell, largest: int) -> Iterator[Cell]:
    """Pieces of the reach as cells of their own."""
    for start in range(0, len(cell.reach_R), largest):
        piece_R = cell.reach_R[start : start + largest]
        members_M = np.intersect1d(piece_R, cell.members_M, assume_unique=True)
        if len(members_M):
            yield Cell(members_M, piece_R)


@contextmanager
def _one_thread() -> Iterator[None]:
    """FAISS on one thread: the order of a sum must not depend on how many there are."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # a setting of the calling thread
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
