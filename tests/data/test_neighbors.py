from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from loriini.data import neighbors
from loriini.data.artifact import Artifact, build


def unit_vectors(count: int, width: int = 16, seed: int = 0) -> NDArray[np.float16]:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def embeddings_artifact(folder: Path, vectors: NDArray[np.float16]) -> Artifact:
    def write(temporary: Path) -> dict[str, int]:
        np.save(temporary / "embeddings.npy", vectors)
        return {"documents": len(vectors)}

    return build(folder, {}, {}, write)


def nearest_reference(vectors: NDArray[np.float16], k: int) -> NDArray[np.int64]:
    """The naive twin: all cosines, oneself removed, sorted."""
    cosines = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :k]


def test_exact_in_one_cell(tmp_path: Path) -> None:
    vectors = unit_vectors(300)
    artifact = neighbors.write_neighbors(
        tmp_path / "neighbors", embeddings_artifact(tmp_path / "embeddings", vectors), k=5
    )
    found = np.load(artifact.path("neighbors.npy"))
    assert found.dtype == np.int32
    assert np.array_equal(found, nearest_reference(vectors, 5))
    similarities = np.load(artifact.path("similarities.npy"))
    assert similarities.dtype == np.float16
    assert (np.diff(similarities.astype(np.float32), axis=1) <= 0).all()
    assert artifact.counts == {"documents": 300, "cells": 1}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_documents_than_neighbors(tmp_path: Path, count: int) -> None:
    embedded = embeddings_artifact(tmp_path / "embeddings", unit_vectors(count))
    found = np.load(neighbors.write_neighbors(tmp_path / "neighbors", embedded, k=6).path("neighbors.npy"))
    assert found.shape == (count, 6)
    assert (found[:, count - 1 :] == -1).all()
    assert all(set(row[: count - 1]) == set(range(count)) - {i} for i, row in enumerate(found))


def test_self_is_removed_by_id_among_equal_vectors(tmp_path: Path) -> None:
    embedded = embeddings_artifact(tmp_path / "embeddings", np.repeat(unit_vectors(1), 10, axis=0))
    found = np.load(neighbors.write_neighbors(tmp_path / "neighbors", embedded, k=4).path("neighbors.npy"))
    assert not (found == np.arange(10)[:, None]).any()
    assert (found >= 0).all()


def test_cells_hold_every_document_once_and_most_neighbors() -> None:
    centers = unit_vectors(30).astype(np.float32)
    vectors = (centers[np.arange(1200) % 30] + 0.3 * unit_vectors(1200, seed=1)).astype(np.float16)
    with ThreadPoolExecutor(2) as pool:
        cells = neighbors.split(vectors, np.arange(1200), 0, pool, cell=200)
        found = np.full((1200, 5), -1)
        for ids in cells:
            found[ids] = neighbors.search(vectors, ids, 5)[0]
    assert max(map(len, cells)) <= 200
    assert np.array_equal(np.sort(np.concatenate(cells)), np.arange(1200))
    exact = nearest_reference(vectors, 5)
    recall = np.mean([len(np.intersect1d(a, b)) / 5 for a, b in zip(found, exact, strict=True)])
    assert recall > 0.9


def test_cells_of_equal_vectors_are_cut() -> None:
    vectors = np.repeat(unit_vectors(1), 100, axis=0)
    with ThreadPoolExecutor(1) as pool:
        cells = neighbors.split(vectors, np.arange(100), 0, pool, cell=30)
    assert np.array_equal(np.concatenate(cells), np.arange(100))
    assert max(map(len, cells)) <= 30


def test_same_bytes_whatever_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "BLOCK", 64)
    monkeypatch.setattr(neighbors, "CELL", 200)
    embedded = embeddings_artifact(tmp_path / "embeddings", unit_vectors(700))
    one, two = (
        neighbors.write_neighbors(tmp_path / f"{workers}", embedded, k=7, workers=workers)
        for workers in (1, 2)
    )
    assert one.files == two.files
    assert one.counts["cells"] > 1
