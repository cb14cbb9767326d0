"""Several sources as one: every instance once, in order, read from the one it belongs to."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from loriini.common.errors import InputError
from loriini.data.batches.joined import JoinedInstances
from loriini.data.batches.loader import BatchLoader
from loriini.data.batches.permutation import epoch_shares, mixed_epochs


@dataclass(frozen=True)
class Numbered:
    """Instances whose tokens are all their own number."""

    first: int
    size: int
    length: int = 3
    label_names: tuple[str, ...] = ("even", "odd")

    def __len__(self) -> int:
        return self.size

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        assert ((ids_B >= 0) & (ids_B < self.size)).all()
        return np.repeat(self.first + ids_B[:, None], self.length + 1, axis=1)

    def positions(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.repeat((self.first + ids_B)[:, None], self.length + 1, axis=1) * [0, 1, 2, 3]

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return (self.first + ids_B) % 2


JOINED = JoinedInstances((Numbered(0, 4), Numbered(4, 1), Numbered(5, 6)))


def test_instances_are_those_of_each_source_in_the_order_requested() -> None:
    ids = np.array([10, 0, 4, 5, 3, 10])
    assert (len(JOINED), JOINED.length, JOINED.label_names) == (11, 3, ("even", "odd"))
    tokens, labels = JOINED.read(ids), JOINED.labels(ids)
    assert tokens.dtype == labels.dtype == np.int64
    assert tokens.tolist() == [[i] * 4 for i in ids]
    assert labels.tolist() == (ids % 2).tolist()
    assert JOINED.positions(ids)[:, 1].tolist() == ids.tolist()


def test_different_label_names_are_refused_when_used() -> None:
    joined = JoinedInstances((Numbered(0, 2), Numbered(2, 2, label_names=("prose",))))
    assert len(joined) == 4
    with pytest.raises(InputError, match="same domains, not even, odd; prose; prepare them as one"):
        _ = joined.label_names


def test_an_empty_source_changes_nothing() -> None:
    joined = JoinedInstances((Numbered(0, 2), Numbered(99, 0), Numbered(2, 2)))
    assert joined.read(np.arange(4))[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("weights", [(2.0, 1.0, 0.5), (0.3, 3.0, 1.0)])
def test_weights_are_the_readings_of_a_source_in_an_epoch(weights: tuple[float, ...]) -> None:
    sizes = (40, 6, 20)
    shares = [round(w * n) for w, n in zip(weights, sizes, strict=True)]
    bounds = np.cumsum([0, *sizes])
    for epoch in range(3):
        ids = mixed_epochs(np.arange(sum(shares)) + epoch * sum(shares), sizes, weights, seed=5)
        assert np.histogram(ids, bounds)[0].tolist() == shares


def test_shares_of_an_epoch_are_rounded() -> None:
    assert epoch_shares([100, 7, 3], [0.29, 0.5, 0.1]).tolist() == [29, 4, 1]  # 0.29 · 100 is below 29


def test_what_an_epoch_leaves_out_depends_on_the_seed() -> None:
    read = [mixed_epochs(np.arange(20), (40,), (0.5,), seed) for seed in range(3)]
    assert len({frozenset(ids.tolist()) for ids in read}) == 3


def test_after_whole_epochs_a_source_is_read_evenly() -> None:
    sizes, weights, places_of_an_epoch = (40, 6), (0.3, 2.5), 12 + 15
    for epochs in (1, 2, 7):
        ids = mixed_epochs(np.arange(epochs * places_of_an_epoch), sizes, weights, seed=1)
        for own in (np.bincount(ids, minlength=46)[:40], np.bincount(ids, minlength=46)[40:]):
            assert own.max() - own.min() <= 1


def test_a_mixture_does_not_depend_on_the_number_of_ranks() -> None:
    joined = JoinedInstances(JOINED.parts, (2.0, 1.0, 0.5))
    whole = BatchLoader(joined, batch_size=12, seed=3)
    shared = [BatchLoader(joined, batch_size=12, seed=3, rank=rank, world_size=3) for rank in range(3)]
    for consumed in (0, 12, 120):
        ids = whole.at(consumed)[1]
        assert np.concatenate([b.at(consumed)[1] for b in shared]).tolist() == ids.tolist()
    assert not np.array_equal(ids, BatchLoader(joined, batch_size=12, seed=4).at(120)[1])
