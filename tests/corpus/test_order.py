from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loriini.corpus import order
from loriini.errors import InputError
from loriini.jobs.artifact import Artifact, build_artifact


@st.composite
def neighbor_graphs(draw: st.DrawFn) -> NDArray[np.integer]:
    """Any rows at all: with none (-1), oneself and the same neighbour twice; int32 or int64."""
    documents = draw(st.integers(0, 80))
    columns = draw(st.integers(0, 5))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(-1, max(documents, 1), (documents, columns)).astype(dtype)


@given(neighbor_graphs(), st.integers(0, 3), st.sampled_from([1, 2, 3, 7, 50]))
@settings(deadline=None)
def test_walks_equal_their_naive_twins(neighbors: NDArray[np.integer], seed: int, window: int) -> None:
    plain, similar = order.plain_walk(neighbors, seed), order.similar_walk(neighbors, seed, window=window)
    assert np.array_equal(plain, order.plain_walk_reference(neighbors, seed))
    assert np.array_equal(similar, order.similar_walk_reference(neighbors, seed, window))
    assert np.array_equal(np.sort(plain), np.arange(len(neighbors)))
    assert np.array_equal(np.sort(similar), np.arange(len(neighbors)))


@given(neighbor_graphs(), st.data())
@settings(deadline=None)
def test_left_out_documents_stay_out(neighbors: NDArray[np.integer], data: st.DataObject) -> None:
    ids = np.arange(len(neighbors))
    left_out = (
        ids[data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))] if len(ids) else ids
    )
    for walk in (order.plain_walk, order.similar_walk):
        assert np.array_equal(np.sort(walk(neighbors, 0, left_out)), np.setdiff1d(ids, left_out))


def test_plain_walk_takes_the_first_unused_neighbor() -> None:
    neighbors = np.array([[0, 2, 1], [1, 0, -1], [2, 0, 3], [3, 0, 2]])
    first = int(order.random_order(4, seed=0)[0])
    expected = {0: [0, 2, 3, 1], 1: [1, 0, 2, 3], 2: [2, 0, 1, 3], 3: [3, 0, 2, 1]}
    assert order.plain_walk(neighbors, seed=0).tolist() == expected[first]


def test_similar_walk_starts_where_links_are_few_and_looks_back() -> None:
    star = np.array([[1, 2, 3], [0, -1, -1], [0, -1, -1], [0, -1, -1]])
    walk = order.similar_walk(star)
    assert walk[1] == 0
    assert order.restarts(walk, star, look_back=50) == 0
    assert order.restarts(order.plain_walk(star), star) >= 1


def test_similar_walk_goes_where_the_last_documents_agree() -> None:
    # from 0 to 1; then 1 would rather go to 3, but 2 is a neighbour of both
    neighbors = np.array([[1, 2], [3, 2], [4, 5], [4, 5], [5, 3], [4, 3]])
    assert order.similar_walk(neighbors, window=1).tolist()[:3] == [0, 1, 3]
    assert order.similar_walk(neighbors, window=2).tolist()[:3] == [0, 1, 2]


def test_half_the_documents_of_an_instance_vote() -> None:
    assert [order.window_for(x) for x in (0.1, 1, 4, 15, 1000)] == [1, 1, 2, 8, 50]
    with pytest.raises(ValueError, match="window is 0"):
        order.similar_walk(np.zeros((2, 1), np.int64), window=0)


def test_restarts_of_a_random_order_are_nearly_all() -> None:
    ring = (np.arange(100)[:, None] + [1, 2]) % 100
    assert order.restarts(np.arange(100), ring) == 0
    assert order.restarts(order.random_order(100, seed=1), ring) > 80


def test_seed_decides() -> None:
    neighbors = np.full((50, 2), -1)
    assert np.array_equal(order.plain_walk(neighbors, 1), order.plain_walk(neighbors, 1))
    assert not np.array_equal(order.plain_walk(neighbors, 1), order.plain_walk(neighbors, 2))


@pytest.mark.parametrize(
    "neighbors",
    [np.array([[2], [0]]), np.array([[-2], [0]]), np.array([[0.0], [1.0]]), np.array([0, 1])],
    ids=["too large", "below -1", "not integers", "not a matrix"],
)
def test_malformed_neighbors_are_refused(neighbors: NDArray[np.integer]) -> None:
    with pytest.raises(ValueError, match="neighbors_NK"):
        order.plain_walk(neighbors)
    with pytest.raises(ValueError, match="neighbors_NK"):
        order.similar_walk(neighbors)


def neighbors_artifact(folder: Path, neighbors: NDArray[np.integer]) -> Artifact:
    def write(temporary: Path) -> dict[str, int]:
        np.save(temporary / "neighbors.npy", neighbors)
        return {}

    return build_artifact(folder, {}, {}, write)


def test_write_order(tmp_path: Path) -> None:
    ring = ((np.arange(30)[:, None] + [1, 2]) % 30).astype(np.int32)
    neighbors = neighbors_artifact(tmp_path / "neighbors", ring)
    similar = order.write_order(tmp_path / "similar", neighbors, 30)
    assert np.array_equal(np.load(similar.path("order.npy")), order.similar_walk(ring))
    assert similar.counts["documents"] == 30
    assert similar.counts["restarts"] == 0
    shuffled = order.write_order(tmp_path / "random", None, 30, "random", seed=3)
    assert np.array_equal(np.load(shuffled.path("order.npy")), order.random_order(30, 3))


def test_write_order_refuses(tmp_path: Path) -> None:
    neighbors = neighbors_artifact(tmp_path / "neighbors", np.zeros((3, 1), np.int32))
    with pytest.raises(InputError, match="alphabetical"):
        order.write_order(tmp_path / "order", neighbors, 3, "alphabetical")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs neighbours"):
        order.write_order(tmp_path / "order", None, 3)
    with pytest.raises(InputError, match="has 3 documents, not 4"):
        order.write_order(tmp_path / "order", neighbors, 4)
    assert not (tmp_path / "order").exists()
