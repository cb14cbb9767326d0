"""embeddings → the k most similar documents of each.

Search is exact within a cell. A small corpus is one cell; a large one is split by k-means, again and again,
until no cell is larger than 20,000 documents. A cell is a task on one thread, and so is each block of a
split, so that the result does not depend on how many threads there are.

Axes: N documents, K neighbours, D embedding width, M documents of a cell.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import DTypeLike, NDArray

from loriini.data.artifact import Artifact, build, parts_of
from loriini.data.tasks import IN_PROCESS, Executor, Task, run_tasks
from loriini.progress import Advance

Ids = NDArray[np.int64]
Vectors = NDArray[np.floating]

NEIGHBORS, SIMILARITIES, IDS = "neighbors.npy", "similarities.npy", "ids.npy"
CELL = 20_000
FAN_OUT = 64
"""The most cells one k-means splits into: recursion makes the rest, at a cost that grows with log N."""
SAMPLE_PER_CELL = 256
BLOCK = 8192


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int = 50, seed: int = 0, execute: Executor = IN_PROCESS
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, k) (int64 from 2^31 documents), -1 where there is none;
    `similarities.npy` float16 (N, k), 0 where there is none. Neighbours share their document's cell. One task
    splits, then each takes cells of some thousand documents together.
    """

    def write(temporary: Path) -> dict[str, Any]:
        parts = parts_of(temporary)
        vectors = embeddings.path("embeddings.npy")
        count = len(np.load(vectors, mmap_mode="r"))
        split_all = Task("cells", partial(_split, vectors, seed, execute.workers, CELL))
        (cells,) = run_tasks("cells", [split_all], temporary, execute)
        bounds = accumulate(cells["documents"], initial=0)
        tasks = [
            Task(f"near-{i:05d}", partial(_search, vectors, parts / "cells", group, k), group[-1] - group[0])
            for i, group in enumerate(_groups(list(bounds), CELL))
        ]
        run_tasks("neighbors", tasks, temporary, execute)
        found = [parts / task.name for task in tasks]
        _scatter(found, temporary / NEIGHBORS, np.int32 if count < 1 << 31 else np.int64, (count, k))
        _scatter(found, temporary / SIMILARITIES, np.float16, (count, k))
        return {"documents": count, "cells": len(cells["documents"])}

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


def _split(
    vectors: Path, seed: int, threads: int, cell: int, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the ids of every cell, one cell after the other."""
    vectors_ND = np.load(vectors, mmap_mode="r")
    with ThreadPoolExecutor(threads) as pool:
        cells = split(vectors_ND, np.arange(len(vectors_ND)), seed, pool, cell)
    np.save(folder / IDS, np.concatenate(cells))
    return {"documents": [len(ids) for ids in cells]}


def _groups(bounds: list[int], documents: int) -> Iterator[list[int]]:
    """The bounds of consecutive cells, as many as it takes to reach so many documents together."""
    group = bounds[:1]
    for bound in bounds[1:]:
        group.append(bound)
        if bound - group[0] >= documents or bound == bounds[-1]:
            yield group
            group = [bound]


def _search(
    vectors: Path, cells: Path, bounds: list[int], k: int, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the ids of some cells' documents, their neighbours and the similarities."""
    vectors_ND = np.load(vectors, mmap_mode="r")
    ids_M = np.load(cells / IDS, mmap_mode="r")[bounds[0] : bounds[-1]]
    found = []
    for first, last in pairwise(np.array(bounds) - bounds[0]):
        found.append(search(vectors_ND, ids_M[first:last], k))
        advance(int(last - first))
    neighbors, similarities = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    np.save(folder / IDS, ids_M)
    np.save(folder / NEIGHBORS, neighbors)
    np.save(folder / SIMILARITIES, similarities.astype(np.float16))
    return {}


def _scatter(parts: Sequence[Path], target: Path, dtype: DTypeLike, shape: tuple[int, int]) -> None:
    """Write the parts' rows to the places of their documents."""
    rows_NK = np.lib.format.open_memmap(target, "w+", dtype, shape)
    for part in parts:
        rows_NK[np.load(part / IDS)] = np.load(part / target.name)
    rows_NK.flush()
