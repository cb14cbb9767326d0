from threading import current_thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.batches.test_joined import Numbered
from loriini.common.errors import InputError
from loriini.data.batches.loader import BatchLoader, ReadAhead
from loriini.data.batches.permutation import permute


@given(st.integers(1, 600), st.integers(0, 2**63))
@settings(deadline=None)
def test_permute_is_a_bijection(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


def test_permute_of_a_large_range() -> None:
    size = 100_003
    permuted = permute(np.arange(size), size, (0, 1))
    assert len(np.unique(permuted)) == size
    assert abs(np.corrcoef(permuted, np.arange(size))[0, 1]) < 0.02
    assert not np.array_equal(permuted, permute(np.arange(size), size, (0, 2)))
    assert permute(np.arange(size)[-1:], size, (0, 1)) == permuted[-1]


@pytest.mark.parametrize("bit", [0, 1, 5, 9])
def test_no_difference_of_places_goes_through_the_permutation(bit: int) -> None:
    """It would put certain instances at one distance from each other in every epoch."""
    places = np.arange(1 << 10)
    differences = permute(places, 1 << 10, 3) ^ permute(places ^ (1 << bit), 1 << 10, 3)
    for half in (differences >> 5, differences & 31):
        assert len(np.unique(half)) > 20


def test_zeros_at_the_end_of_a_key_do_not_count() -> None:
    """So runs that are resumed rely on it: another rule would change their order."""
    ids = np.arange(1000)
    assert np.array_equal(permute(ids, 1000, (3,)), permute(ids, 1000, (3, 0)))
    assert not np.array_equal(permute(ids, 1000, (3,)), permute(ids, 1000, (3, 1)))


def test_every_epoch_has_every_instance_once_in_another_order() -> None:
    batches = BatchLoader(Numbered(0, 10), batch_size=4, seed=7)
    place, seen = 0, []
    for _ in range(5):
        tokens, ids, place = batches.at(place)
        assert tokens.dtype == np.int64
        assert tokens[:, 1].tolist() == ids.tolist()
        seen += ids.tolist()
    assert place == 20
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


@given(st.integers(1, 40), st.lists(st.sampled_from([(1, 1), (2, 1), (4, 2), (6, 3), (8, 4)]), min_size=1))
@settings(deadline=None)
def test_batch_size_and_world_may_change_between_runs(size: int, runs: list[tuple[int, int]]) -> None:
    place, seen, source = 0, [], Numbered(0, size)
    for batch_size, world in runs:
        shares = [BatchLoader(source, batch_size, 0, rank, world).at(place) for rank in range(world)]
        seen += [int(i) for _, ids, _ in shares for i in ids]
        place = shares[0][2]
    whole = BatchLoader(source, place, 0).at(0)[1]
    assert seen == whole.tolist()
    assert np.ptp(np.bincount(seen, minlength=size)) <= 1


def test_reading_ahead_changes_no_batch() -> None:
    batches = BatchLoader(Numbered(0, 10), batch_size=4, seed=7)
    threads, places = set[str](), [0, 4, 8, 4, 8, 100]

    def read(place: int) -> tuple[list[int], int]:
        threads.add(current_thread().name)
        _, ids, following = batches.at(place)
        return ids.tolist(), following

    expected = [read(place) for place in places]
    threads.clear()
    with ReadAhead(read) as ahead:
        assert [ahead(place) for place in places] == expected
    assert threads == {"MainThread", "read-ahead_0"}


def test_an_error_of_the_next_batch_is_raised_when_it_is_asked_for() -> None:
    def read(place: int) -> tuple[int, int]:
        if place == 1:
            raise InputError("damaged")
        return place, place + 1

    with ReadAhead(read) as ahead:
        assert ahead(0) == (0, 1)
        with pytest.raises(InputError, match="damaged"):
            ahead(1)
        assert ahead(0)[0] == 0
