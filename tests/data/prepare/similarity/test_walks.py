from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loriini.data.prepare.similarity import walks


@st.composite
def neighbor_graphs(draw: st.DrawFn) -> NDArray[np.integer]:
    """Any rows at all: with none (-1), oneself and the same neighbour twice; int32 or int64."""
    documents = draw(st.integers(0, 80))
    columns = draw(st.integers(0, 5))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(-1, max(documents, 1), (documents, columns)).astype(dtype)


def plain_walk_reference(neighbors: NDArray[np.integer], seed: int) -> NDArray[np.int64]:
    """The naive twin of `plain_walk`."""
    return walk_reference(neighbors, walks.random_order(len(neighbors), seed), look_back=1, window=1)


def similar_walk_reference(neighbors: NDArray[np.integer], seed: int, window: int) -> NDArray[np.int64]:
    """The naive twin of `similar_walk`."""
    links = [(a, b) for a, row in enumerate(neighbors) for b in row if b >= 0 and a != b]
    degrees = np.bincount(np.array(links, np.int64).ravel(), minlength=len(neighbors))
    starts = sorted(walks.random_order(len(neighbors), seed), key=lambda document: degrees[document])
    return walk_reference(neighbors, starts, look_back=50, window=window)


def walk_reference(
    neighbors: NDArray[np.integer], starts: Iterable[int], look_back: int, window: int
) -> NDArray[np.int64]:
    unused = dict.fromkeys(map(int, starts))
    order: list[int] = []
    while unused:
        votes = Counter(int(b) for a in order[-window:] for b in neighbors[a] if window > 1)
        rows = ([int(b) for b in neighbors[a] if int(b) in unused] for a in reversed(order[-look_back:]))
        candidates = next((row for row in rows if row), None) or [next(iter(unused))]
        following = max(candidates, key=lambda document: votes[document])
        del unused[following]
        order.append(following)
    return np.array(order, np.int64)


@given(neighbor_graphs(), st.integers(0, 3), st.sampled_from([1, 2, 3, 7, 50]))
@settings(deadline=None)
def test_walks_equal_their_naive_twins(neighbors: NDArray[np.integer], seed: int, window: int) -> None:
    plain, similar = walks.plain_walk(neighbors, seed), walks.similar_walk(neighbors, seed, window=window)
    assert np.array_equal(plain, plain_walk_reference(neighbors, seed))
    assert np.array_equal(similar, similar_walk_reference(neighbors, seed, window))
    assert np.array_equal(np.sort(plain), np.arange(len(neighbors)))
    assert np.array_equal(np.sort(similar), np.arange(len(neighbors)))


@given(neighbor_graphs(), st.data())
@settings(deadline=None)
def test_left_out_documents_stay_out(neighbors: NDArray[np.integer], data: st.DataObject) -> None:
    ids = np.arange(len(neighbors))
    left_out = (
        ids[data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))] if len(ids) else ids
    )
    for walk in (walks.plain_walk, walks.similar_walk):
        assert np.array_equal(np.sort(walk(neighbors, 0, left_out)), np.setdiff1d(ids, left_out))


def test_similar_walk_starts_where_links_are_few_and_looks_back() -> None:
    star = np.array([[1, 2, 3], [0, -1, -1], [0, -1, -1], [0, -1, -1]])
    walk = walks.similar_walk(star)
    assert walk[1] == 0
    assert walks.count_jumps(walk, star, look_back=50) == 0
    assert walks.count_jumps(walks.plain_walk(star), star) >= 1


def test_a_window_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="window is 32768; it must be 1 to 32767"):  # votes would overflow
        walks.similar_walk(np.zeros((3, 1), np.int32), window=1 << 15)
    with pytest.raises(ValueError, match="window is 0"):
        walks.similar_walk(np.zeros((2, 1), np.int64), window=0)


@pytest.mark.parametrize(
    "neighbors",
    [np.array([[2], [0]]), np.array([[-2], [0]]), np.array([[0.0], [1.0]]), np.array([0, 1])],
    ids=["too large", "below -1", "not integers", "not a matrix"],
)
def test_malformed_neighbors_are_refused(neighbors: NDArray[np.integer]) -> None:
    with pytest.raises(ValueError, match="neighbors_NK"):
        walks.plain_walk(neighbors)
    with pytest.raises(ValueError, match="neighbors_NK"):
        walks.similar_walk(neighbors)
