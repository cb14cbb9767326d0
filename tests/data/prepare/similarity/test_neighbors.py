from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from data.prepare.arrays import stage_of, unit_vectors
from loriini.data.jobs.artifact import Artifact
from loriini.data.jobs.tasks import SerialExecutor
from loriini.data.prepare.similarity import neighbors


def write(folder: Path, vectors: NDArray[np.float16], k: int) -> Artifact:
    return neighbors.write_neighbors(folder / "neighbors", embedded(folder / "embeddings", vectors), k, 0)


def embedded(folder: Path, vectors: NDArray[np.float16]) -> Artifact:
    return stage_of(folder, len(vectors), embeddings=vectors)


def nearest_reference(vectors: NDArray[np.float16], k: int) -> NDArray[np.int64]:
    """The naive twin: all cosines, oneself removed, sorted."""
    cosines = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


def test_exact_in_one_cell(tmp_path: Path) -> None:
    vectors = unit_vectors(300)
    artifact = write(tmp_path, vectors, k=5)
    found = np.load(artifact.path("neighbors.npy"))
    assert found.dtype == np.int32
    assert np.array_equal(found, nearest_reference(vectors, 5))
    similarities = np.load(artifact.path("similarities.npy"))
    assert similarities.dtype == np.float16
    assert (np.diff(similarities.astype(np.float32), axis=1) <= 0).all()
    assert artifact.counts == {"documents": 300, "cells": 1}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_documents_than_neighbors(tmp_path: Path, count: int) -> None:
    found = np.load(write(tmp_path, unit_vectors(count), k=6).path("neighbors.npy"))
    assert found.shape == (count, 6)
    assert (found[:, count - 1 :] == -1).all()
    assert all(set(row[: count - 1]) == set(range(count)) - {i} for i, row in enumerate(found))


@pytest.mark.parametrize(("count", "columns"), [(60, 59), (20, 50)])
def test_no_more_columns_than_other_documents(tmp_path: Path, count: int, columns: int) -> None:
    vectors = unit_vectors(count)
    artifact = write(tmp_path, vectors, k=20_000)
    found = np.load(artifact.path("neighbors.npy"))
    assert found.shape == np.load(artifact.path("similarities.npy")).shape == (count, columns)
    assert np.array_equal(found[:, : count - 1], nearest_reference(vectors, count - 1))
    assert artifact.settings["neighbors"] == 20_000


def test_of_equal_vectors_the_lower_id_comes_first() -> None:
    vectors = unit_vectors(12)[np.arange(60) % 12]
    found, _ = neighbors.search_cell(vectors, neighbors.single_cell(60), 4)
    for i, row in enumerate(found):
        assert row.tolist() == [j for j in range(i % 12, 60, 12) if j != i]


def recall_of(cells: list[neighbors.SearchCell], vectors: NDArray[np.float16]) -> float:
    found = np.full((len(vectors), 5), -1)
    for cell in cells:
        found[cell.members_M] = neighbors.search_cell(vectors, cell, 5)[0]
    exact = nearest_reference(vectors, 5)
    return float(np.mean([len(np.intersect1d(a, b)) / 5 for a, b in zip(found, exact, strict=True)]))


@pytest.mark.parametrize(("fan_out", "largest"), [(40, 150), (1024, 400)])
def test_cells_hold_every_document_once_and_reach_over_borders(
    fan_out: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "FAN_OUT", fan_out)
    vectors = unit_vectors(1200, width=6)
    with ThreadPoolExecutor(2) as pool:
        cells = list(neighbors.split_cell(vectors, neighbors.single_cell(1200), 0, pool, largest, overlap=4))
    assert max(len(cell.reach_R) for cell in cells) <= largest
    assert np.array_equal(np.sort(np.concatenate([cell.members_M for cell in cells])), np.arange(1200))
    for cell in cells:
        assert np.isin(cell.members_M, cell.reach_R).all()
        assert (np.diff(cell.reach_R) > 0).all()
    assert recall_of(cells, vectors) > 0.85
    alone = [neighbors.SearchCell(cell.members_M, cell.members_M) for cell in cells]
    assert recall_of(alone, vectors) < 0.8


def test_cells_of_equal_vectors_are_cut() -> None:
    vectors = np.repeat(unit_vectors(1), 1000, axis=0)
    with ThreadPoolExecutor(1) as pool:
        cells = list(neighbors.split_cell(vectors, neighbors.single_cell(1000), 0, pool, 300, overlap=8))
    assert np.array_equal(np.concatenate([cell.members_M for cell in cells]), np.arange(1000))
    assert max(len(cell.reach_R) for cell in cells) <= 300


def test_cells_are_made_from_documents_of_the_whole_corpus() -> None:
    """Also where similar documents come together, so that the first ones are of one kind."""
    vectors = np.repeat(unit_vectors(2, seed=1), 2000, axis=0) + 0.3 * unit_vectors(4000).astype(np.float32)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    with ThreadPoolExecutor(1) as pool:
        labels_R = neighbors._nearest_centroids(vectors, neighbors.single_cell(4000), 20, 1, 0, pool)[0]
    for kind in np.split(labels_R, 2):
        assert np.bincount(kind, minlength=20).max() < 1000


def test_overlaps_of_documents_that_are_hardly_apart_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    def hardly_apart(vectors, cell, parts, overlap, seed, pool):
        """All but a few documents have the same cells nearest, in one order or another."""
        first_R = np.arange(len(cell.reach_R))
        labels_PR = (np.arange(overlap)[:, None] + first_R) % overlap
        labels_PR[:, first_R % 50 == 0] = parts - 1
        return labels_PR

    monkeypatch.setattr(neighbors, "_nearest_centroids", hardly_apart)
    vectors = unit_vectors(4000)
    with ThreadPoolExecutor(1) as pool:
        cells = list(neighbors.split_cell(vectors, neighbors.single_cell(4000), 0, pool, 100, overlap=8))
    assert np.array_equal(np.sort(np.concatenate([cell.members_M for cell in cells])), np.arange(4000))
    assert max(len(cell.reach_R) for cell in cells) <= 100
    assert sum(len(cell.reach_R) for cell in cells) <= 8 * 4000


def test_tasks_and_threads_do_not_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "ASSIGNED_AT_ONCE", 64)
    monkeypatch.setattr(neighbors, "CELL", 400)
    stage = embedded(tmp_path / "embeddings", unit_vectors(700))
    written = []
    for workers, members in ((1, 1 << 20), (3, 100)):
        monkeypatch.setattr(neighbors, "MEMBERS_PER_TASK", members)
        execute = SerialExecutor(workers)
        written.append(neighbors.write_neighbors(tmp_path / f"{workers}", stage, 7, 0, execute))
    assert written[0].files == written[1].files
    assert written[0].counts["cells"] > 1
