"""embeddings → the k most similar documents of each.

Search is exact within a cell. A small corpus is one cell. A large one is split by k-means: a cell answers for
its members, the documents nearest to its centroid, and searches for them in its reach, all those that have it
among their `OVERLAP` nearest centroids; so neighbours are found across borders. A reach too large for a cell
is split again. A cell is a task on one thread, and so is each block of a split: the result does not depend on
how many threads there are.

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

from loriini.jobs.arrays import new_array
from loriini.jobs.artifact import Artifact, build_artifact, parts_folder
from loriini.jobs.tasks import SERIAL, Executor, Task, run_tasks
from loriini.progress import Advance

Ids = NDArray[np.int64]
Vectors = NDArray[np.floating]

NEIGHBORS, SIMILARITIES, IDS = "neighbors.npy", "similarities.npy", "ids.npy"
MEMBERS, REACH = "members.bin", "reach.bin"
CELL = 40_000
"""The largest reach of a cell."""
EVENNESS = 5
"""Cells are unequal: a split aims at a mean reach so many times smaller, and few are split again."""
OVERLAP = 8
FAN_OUT = 1024
"""The most cells one k-means splits into: recursion makes the rest."""
SAMPLE_PER_CELL = 64
BLOCK = 8192
TASK = 20_000
"""The members of the cells that one task takes, at least."""


@dataclass(frozen=True)
class Cell:
    """The documents a task answers for, and those among which it searches, its own included; both rising."""

    members_M: Ids
    reach_R: Ids


def write_neighbors(
    folder: Path, embeddings: Artifact, k: int = 50, seed: int = 0, execute: Executor = SERIAL
) -> Artifact:
    """Write each document's `k` nearest others by inner product of their unit vectors, the nearest first.

    Files: `neighbors.npy` int32 (N, k) (int64 from 2^31 documents), -1 where there is none;
    `similarities.npy` float16 (N, k), 0 where there is none. One task splits, then each takes cells of some
    thousand members together.
    """

    def write(temporary: Path) -> dict[str, Any]:
        parts = parts_folder(temporary)
        vectors = embeddings.path("embeddings.npy")
        count = len(np.load(vectors, mmap_mode="r"))
        split_all = Task("cells", partial(_split, vectors, seed, execute.workers))
        (cells,) = run_tasks("cells", [split_all], temporary, execute)
        members, reaches = (list(accumulate(cells[name], initial=0)) for name in ("members", "reaches"))
        tasks = [
            Task(
                f"near-{i:05d}",
                partial(_search, vectors, parts / "cells", members[group], reaches[group], k),
                members[group][-1] - members[group][0],
            )
            for i, group in enumerate(_groups(members, TASK))
        ]
        done = run_tasks("neighbors", tasks, temporary, execute)
        searched = sum(counts["documents"] for counts in done)
        if searched != count:
            raise RuntimeError(f"neighbours of {searched} documents were searched, there are {count}")
        found = [parts / task.name for task in tasks]
        _scatter(found, temporary / NEIGHBORS, np.int32 if count < 1 << 31 else np.int64, (count, k))
        _scatter(found, temporary / SIMILARITIES, np.float16, (count, k))
        return {"documents": searched, "cells": len(cells["members"])}

    return build_artifact(folder, {"k": k, "seed": seed}, {"embeddings": embeddings.digest}, write)


def whole(count: int) -> Cell:
    """All `count` documents as one cell."""
    ids = np.arange(count)
    return Cell(ids, ids)


def split(
    vectors_ND: Vectors, cell: Cell, seed: int, pool: ThreadPoolExecutor, largest: int, overlap: int
) -> Iterator[Cell]:
    """Cells of a reach of at most `largest` documents; every member of `cell` is a member of exactly one.

    A reach is the documents that have the cell among their `overlap` nearest. Where documents are so alike
    that reaches hardly shrink, they are divided without overlap, and at last anywhere: else the overlaps of
    overlaps would grow without end.
    """
    if len(cell.reach_R) <= largest:
        yield cell
        return
    parts = min(FAN_OUT, -(-EVENNESS * overlap * len(cell.reach_R) // largest))
    labels_PR = _nearest_centroids(vectors_ND, cell, parts, overlap, seed, pool)
    labels_M = labels_PR[0, np.searchsorted(cell.reach_R, cell.members_M)]
    for label in range(parts):
        part = Cell(cell.members_M[labels_M == label], cell.reach_R[(labels_PR == label).any(0)])
        if not len(part.members_M):
            continue
        shrunk = len(cell.reach_R) / len(part.reach_R)
        if shrunk >= max(2, overlap) or len(part.reach_R) <= largest:
            yield from split(vectors_ND, part, seed, pool, largest, overlap)
        elif overlap > 1:
            yield from split(vectors_ND, part, seed, pool, largest, overlap=1)
        else:
            yield from _cut(part, largest)


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
    vectors_ND: Vectors, cell: Cell, parts: int, overlap: int, seed: int, pool: ThreadPoolExecutor
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
            return kmeans.index.search(vectors_BD, overlap)[1].T.astype(np.int16)

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


def _split(vectors: Path, seed: int, threads: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write the members and the reach of every cell, one cell after the other; returns their sizes."""
    vectors_ND = np.load(vectors, mmap_mode="r")
    sizes: dict[str, list[int]] = {"members": [], "reaches": []}
    with (
        ThreadPoolExecutor(min(threads, os.cpu_count() or 1)) as pool,
        open(folder / MEMBERS, "wb") as members,
        open(folder / REACH, "wb") as reaches,
    ):
        for cell in split(vectors_ND, whole(len(vectors_ND)), seed, pool, CELL, OVERLAP):
            members.write(cell.members_M.tobytes())
            reaches.write(cell.reach_R.tobytes())
            sizes["members"].append(len(cell.members_M))
            sizes["reaches"].append(len(cell.reach_R))
    return sizes


def _groups(bounds: list[int], members: int) -> Iterator[slice]:
    """Consecutive cells, as slices of their bounds, as many as it takes to have so many members together."""
    first = 0
    for last in range(1, len(bounds)):
        if bounds[last] - bounds[first] >= members or last == len(bounds) - 1:
            yield slice(first, last + 1)
            first = last


def _search(
    vectors: Path, cells: Path, members: list[int], reaches: list[int], k: int, folder: Path, advance: Advance
) -> dict[str, Any]:
    """Write the ids of some cells' members, their neighbours and the similarities."""
    members_N, reaches_R = (np.memmap(cells / name, np.int64, "r") for name in (MEMBERS, REACH))
    found = []
    for (first, last), (start, stop) in zip(pairwise(members), pairwise(reaches), strict=True):
        cell = Cell(np.array(members_N[first:last]), np.array(reaches_R[start:stop]))
        # mapped anew for each cell: what was read of a mapped file counts as memory held
        neighbors, similarities = search(np.load(vectors, mmap_mode="r"), cell, k)
        found.append((neighbors, similarities.astype(np.float16)))
        advance(last - first)
    np.save(folder / IDS, members_N[members[0] : members[-1]])
    for name, arrays in zip((NEIGHBORS, SIMILARITIES), zip(*found, strict=True), strict=True):
        np.save(folder / name, np.concatenate(arrays))
    return {"documents": sum(len(neighbors) for neighbors, _ in found)}


def _scatter(parts: Sequence[Path], target: Path, dtype: DTypeLike, shape: tuple[int, int]) -> None:
    """Write the parts' rows to the places of their documents."""
    rows_NK = new_array(target, dtype, shape)
    for part in parts:
        rows_NK[np.load(part / IDS)] = np.load(part / target.name)
    rows_NK.flush()
