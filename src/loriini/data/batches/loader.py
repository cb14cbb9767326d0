"""Instances to batches, in an order that is a function of (seed, epoch) and needs no table in memory.

The place in the data is a number, the instances `consumed` by all processes over all epochs: save it, and
training resumes with the next instance, also with another batch size or number of processes. An epoch reads
every instance exactly once, except where sources are joined with weights.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from loriini.data.batches.joined import InstanceSource, weighted_sources
from loriini.data.batches.permutation import epoch_shares, mixed_epochs, shuffled_epochs

Item = TypeVar("Item")


@dataclass(frozen=True)
class BatchLoader:
    """Batches of `batch_size` instances over all processes; this process reads its `rank`'s share of each.

    A batch may straddle two epochs. `batch_size` is a multiple of `world_size`, as a run checks.
    """

    instances: InstanceSource
    batch_size: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def at(self, consumed: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """This rank's share of the batch after `consumed` instances, and where the next batch begins.

        Returns:
            tokens int64 (batch_size / world_size, length + 1); the instances' ids int64
            (batch_size / world_size,); the instances consumed with this batch.
        """
        share = self.batch_size // self.world_size
        first = consumed + self.rank * share
        ids = self.ids(np.arange(first, first + share))
        return self.instances.read(ids), ids, consumed + self.batch_size

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The instance at each of `places` in the endless sequence of epochs."""
        if mixture := weighted_sources(self.instances):
            return mixed_epochs(places, tuple(map(len, mixture.parts)), mixture.weights, self.seed)
        return shuffled_epochs(places, len(self.instances), self.seed)


def readings(instances: InstanceSource, count: int) -> list[tuple[InstanceSource, float]]:
    """How often, on average, each instance is read in the first `count` places of the epochs.

    One pair of a source and its number per part of a weighted mixture, else one pair.
    """
    mixture = weighted_sources(instances)
    if mixture is None:
        return [(instances, count / len(instances))]
    sizes = list(map(len, mixture.parts))
    shares = epoch_shares(sizes, mixture.weights)
    times = count / shares.sum() * shares / sizes
    return list(zip(mixture.parts, times.tolist(), strict=True))


class ReadAhead(Generic[Item]):
    """Reads the batch that comes next in the background, while the caller computes with this one.

    `read` takes the place of a batch and returns the batch and the next place. A call of this context manager
    returns the same, and raises what `read` raises for that place.
    """

    def __init__(self, read: Callable[[int], tuple[Item, int]]) -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, "read-ahead")
        self._ahead: tuple[int, Future[tuple[Item, int]]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def __call__(self, consumed: int) -> tuple[Item, int]:
        if self._ahead is not None and self._ahead[0] == consumed:
            batch, following = self._ahead[1].result()
        else:
            batch, following = self._read(consumed)
        self._ahead = (following, self._thread.submit(self._read, following))
        return batch, following
