"""The `neighbors` stage: the k documents most similar to each document.

Search is exact within a cell. A small corpus is one cell; a large one is split by k-means. A cell's members
are the documents nearest to its centroid; its reach is every document that has the centroid among its
`OVERLAP` nearest. The neighbours of members are searched in the reach, so that they are found across the
borders of cells. A reach that is too large is split again. Each cell is searched on one thread, and
each block of a split assigned on one, so that the result does not depend on the number of threads.

Axes: N documents, K neighbours, D embedding width, M members and R reach of a cell, P nearest centroids.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import DTypeLike, NDArray

from loriini.common.grouping import group_by_size
from loriini.common.progress import Advance
from loriini.data.jobs.artifact import Artifact, build_artifact, new_array
from loriini.data.jobs.tasks import SERIAL, Executor, Task, run_tasks, task_counts
from loriini.data.prepare.arrays import NEIGHBORS, SIMILARITIES, VECTORS, Ids, Vectors

MEMBERS, REACH, MEMBER_IDS = "members.bin", "reach.bin", "ids.npy"
CELL = 40_000
"""The largest reach of a cell."""
UNEVENNESS = 5
"""A split aims at a mean reach this many times below CELL: reaches differ, and few should be split again."""
OVERLAP = 8
FAN_OUT = 1024
"""The most cells of one k-means."""
SAMPLE_PER_CELL = 64
FEWEST_COLUMNS = 50
"""K is not lowered below this in a small corpus, even if its documents have fewer neighbours."""
ASSIGNED_AT_ONCE = 8192
MEMBERS_PER_TASK = 20_000
"""A task searches consecutive cells until they have this many members."""


@dataclass(frozen=True)
class SearchCell:
    """The documents whose neighbours are searched, and the superset that is searched; both sorted."""

    members_M: Ids
    reach_R: Ids


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int, seed: int, execute: Executor = SERIAL
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, K) (int64 from 2^31 documents), -1 for none; `similarities.npy` float16
    (N, K), 0 for none. K is `k`, but at most the larger of N - 1 and FEWEST_COLUMNS. One task splits the
    corpus into cells, the others search some cells each.
    """
    inputs = {"embeddings": embeddings.digest}
    write = partial(_write, embeddings, k, seed, execute)
    return build_artifact(folder, {"neighbors": k, "seed": seed}, inputs, write)


def single_cell(count: int) -> SearchCell:
    """All `count` documents as one cell."""
    ids = np.arange(count)
    return SearchCell(ids, ids)


def split_cell(
    vectors_ND: Vectors, cell: SearchCell, seed: int, pool: ThreadPoolExecutor, largest: int, overlap: int
) -> Iterator[SearchCell]:
    """Split a cell into cells with a reach of at most `largest`; each member is in exactly one.

    A reach is the documents that have the cell among their `overlap` nearest. Where documents are so similar
    that reaches hardly shrink, they are split without overlap and, if that fails, at arbitrary places:
    overlaps of overlaps would grow without end.
    """
    if len(cell.reach_R) <= largest:
        yield cell
        return
    parts = min(FAN_OUT, -(-UNEVENNESS * overlap * len(cell.reach_R) // largest))
    labels_PR = _nearest_centroids(vectors_ND, cell, parts, overlap, seed, pool)
    labels_M = labels_PR[0, np.searchsorted(cell.reach_R, cell.members_M)]
    for label in range(parts):
        part = SearchCell(cell.members_M[labels_M == label], cell.reach_R[(labels_PR == label).any(0)])
        if not len(part.members_M):
            continue
        shrunk = len(cell.reach_R) / len(part.reach_R)
        if shrunk >= max(2, overlap) or len(part.reach_R) <= largest:
            yield from split_cell(vectors_ND, part, seed, pool, largest, overlap)
        elif overlap > 1:
            yield from split_cell(vectors_ND, part, seed, pool, largest, overlap=1)
        else:
            yield from _cut(part, largest)


def search_cell(vectors_ND: Vectors, cell: SearchCell, k: int) -> tuple[Ids, Vectors]:
    """For each member of a cell, the `k` nearest others in its reach: exact, on one thread.

    Returns:
        int64 (M, k), the nearest first, in a tie the lower id first, -1 for none; and the similarities,
        float32 (M, k), 0 for none.
    """
    index = faiss.IndexFlatIP(vectors_ND.shape[1])
    index.add(vectors_ND[cell.reach_R].astype(np.float32))
    with _one_thread():
        similarities, places = index.search(vectors_ND[cell.members_M].astype(np.float32), k + 1)
    neighbors = np.where(places < 0, -1, cell.reach_R[places])
    # a document is not always its own first neighbour: another may have the same vector
    absent = (places < 0) | (neighbors == cell.members_M[:, None])
    nearest_first = np.lexsort((neighbors, -similarities, absent))[:, :k]
    neighbors = np.where(absent, -1, neighbors)
    similarities = np.where(absent, 0, similarities)
    return np.take_along_axis(neighbors, nearest_first, 1), np.take_along_axis(similarities, nearest_first, 1)


def _write(embeddings: Artifact, k: int, seed: int, execute: Executor, folder: Path) -> dict[str, Any]:
    vectors = embeddings.path(VECTORS)
    count = len(np.load(vectors, mmap_mode="r"))
    k = min(k, max(count - 1, FEWEST_COLUMNS))
    split_all = Task("cells", partial(_split, vectors, seed, execute.workers))
    (split,) = run_tasks("cells", [split_all], folder, execute)
    cells = task_counts(split)
    members, reaches = (list(accumulate(cells[name], initial=0)) for name in ("members", "reaches"))
    groups = group_by_size(range(len(cells["members"])), cells["members"].__getitem__, MEMBERS_PER_TASK)
    bounds = (slice(group[0], group[-1] + 2) for group in groups)  # of a task's cells, and their end
    tasks = [
        Task(
            f"near-{i:05d}",
            partial(_search, vectors, split, members[group], reaches[group], k),
            members[group][-1] - members[group][0],
        )
        for i, group in enumerate(bounds)
    ]
    folders = run_tasks("neighbors", tasks, folder, execute)
    _scatter(folders, folder / NEIGHBORS, np.int32 if count < 1 << 31 else np.int64, (count, k))
    _scatter(folders, folder / SIMILARITIES, np.float16, (count, k))
    documents = sum(task_counts(output)["documents"] for output in folders)
    return {"documents": documents, "cells": len(cells["members"])}


def _nearest_centroids(
    vectors_ND: Vectors, cell: SearchCell, parts: int, overlap: int, seed: int, pool: ThreadPoolExecutor
) -> NDArray[np.int16]:
    """The P = `overlap` nearest centroids of each document in reach, (P, R), by spherical k-means."""
    ids_R = cell.reach_R
    sample = np.random.default_rng(seed).permutation(len(ids_R))[: parts * SAMPLE_PER_CELL]
    kmeans = faiss.Kmeans(
        vectors_ND.shape[1], parts, niter=10, spherical=True, seed=seed, min_points_per_centroid=1
    )
    with _one_thread():
        kmeans.train(vectors_ND[ids_R[np.sort(sample)]].astype(np.float32))

    def assign(start: int) -> NDArray[np.int16]:
        vectors_BD = vectors_ND[ids_R[start : start + ASSIGNED_AT_ONCE]].astype(np.float32)
        with _one_thread():
            return kmeans.index.search(vectors_BD, overlap)[1].T.astype(np.int16)

    return np.concatenate(list(pool.map(assign, range(0, len(ids_R), ASSIGNED_AT_ONCE))), axis=1)


def _cut(cell: SearchCell, largest: int) -> Iterator[SearchCell]:
    """Cut a cell's reach into cells at arbitrary places."""
    for start in range(0, len(cell.reach_R), largest):
        reach_R = cell.reach_R[start : start + largest]
        members_M = np.intersect1d(reach_R, cell.members_M, assume_unique=True)
        if len(members_M):
            yield SearchCell(members_M, reach_R)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run FAISS on one thread: the last bits of a sum depend on the number of threads."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _split(vectors: Path, seed: int, threads: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write the members and reaches of all cells, end to end; returns their sizes."""
    vectors_ND = np.load(vectors, mmap_mode="r")
    sizes: dict[str, list[int]] = {"members": [], "reaches": []}
    with (
        ThreadPoolExecutor(min(threads, os.cpu_count() or 1)) as pool,
        open(folder / MEMBERS, "wb") as members,
        open(folder / REACH, "wb") as reaches,
    ):
        for cell in split_cell(vectors_ND, single_cell(len(vectors_ND)), seed, pool, CELL, OVERLAP):
            members.write(cell.members_M.tobytes())
            reaches.write(cell.reach_R.tobytes())
            sizes["members"].append(len(cell.members_M))
            sizes["reaches"].append(len(cell.reach_R))
    return sizes


def _search(
    vectors: Path, cells: Path, members: list[int], reaches: list[int], k: int, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the ids of some cells' members, their neighbours and the similarities."""
    members_N, reaches_R = (np.memmap(cells / name, np.int64, "r") for name in (MEMBERS, REACH))
    results = []
    for (first, last), (start, stop) in zip(pairwise(members), pairwise(reaches), strict=True):
        cell = SearchCell(np.array(members_N[first:last]), np.array(reaches_R[start:stop]))
        # mapped again for each cell: pages read from a mapped file count as memory held
        neighbors, similarities = search_cell(np.load(vectors, mmap_mode="r"), cell, k)
        results.append((neighbors, similarities.astype(np.float16)))
        advance(last - first)
    np.save(folder / MEMBER_IDS, members_N[members[0] : members[-1]])
    for name, arrays in zip((NEIGHBORS, SIMILARITIES), zip(*results, strict=True), strict=True):
        np.save(folder / name, np.concatenate(arrays))
    return {"documents": sum(len(neighbors) for neighbors, _ in results)}


def _scatter(folders: Sequence[Path], target: Path, dtype: DTypeLike, shape: tuple[int, int]) -> None:
    """Write an array of the tasks' rows, each at the number of its document."""
    rows_NK = new_array(target, dtype, shape)
    for folder in folders:
        rows_NK[np.load(folder / MEMBER_IDS)] = np.load(folder / target.name)
    rows_NK.flush()
