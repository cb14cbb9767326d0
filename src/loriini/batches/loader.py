"""Instances → batches, in an order that is a function of (seed, epoch) and needs no memory.

The place in the data is a value, `Position`: save it, and training goes on with the next instance, with
another batch size or number of processes if need be. Within an epoch every instance comes exactly once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loriini.errors import InputError

ROUNDS = 6


class InstanceSource(Protocol):
    """What batches are taken from: `loriini.corpus.instances.Instances`, or anything of its shape."""

    def __len__(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens predicted in an instance: one fewer than it holds."""
        ...

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of some instances, int64 (B, length + 1)."""
        ...

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label of some instances, int64 (B,), indices into `label_names`."""
        ...

    @property
    def label_names(self) -> tuple[str, ...]:
        """What a label stands for. Only routing by label asks for labels and their names."""
        ...


@dataclass(frozen=True)
class JoinedInstances:
    """Several sources one after the other, as one; they must be of one length (ValueError).

    `weights`, where given, are how often an epoch of the whole comes round each source: 2 reads it twice,
    0.5 every other half of it. A source's instances all come once before one comes again.
    """

    parts: tuple[InstanceSource, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.parts):
            raise ValueError(f"{len(self.weights)} weights for {len(self.parts)} sources; give each one")
        if any(not 0 < weight < math.inf for weight in self.weights):
            raise ValueError(f"weights {self.weights} must be positive numbers")
        lengths = {part.length for part in self.parts}
        if len(lengths) != 1:
            raise ValueError(f"instances of {sorted(lengths)} tokens cannot be joined; cut them alike")

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def length(self) -> int:
        """Tokens predicted in an instance."""
        return self.parts[0].length

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of some instances, int64 (B, length + 1)."""
        tokens_BL = np.empty((len(ids_B), self.length + 1), dtype=np.int64)
        for part, here_B, own_ids in self._owners(ids_B):
            tokens_BL[here_B] = part.read(own_ids)
        return tokens_BL

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label of some instances, int64 (B,)."""
        labels_B = np.empty(len(ids_B), dtype=np.int64)
        for part, here_B, own_ids in self._owners(ids_B):
            labels_B[here_B] = part.labels(own_ids)
        return labels_B

    @property
    def label_names(self) -> tuple[str, ...]:
        """What a label stands for; InputError where the sources do not agree."""
        names = list(dict.fromkeys(part.label_names for part in self.parts))
        if len(names) > 1:
            listed = "; ".join(", ".join(of_part) for of_part in names)
            raise InputError(
                f"routing by label needs corpora of the same domains, not {listed}; prepare them as one"
            )
        return names[0]

    def _owners(
        self, ids_B: NDArray[np.int64]
    ) -> Iterator[tuple[InstanceSource, NDArray[np.bool_], NDArray[np.int64]]]:
        """Each source that holds some of the instances, a mask (B,) of those, and their ids there."""
        starts = np.cumsum([0, *map(len, self.parts)])
        owners_B = np.searchsorted(starts, ids_B, side="right") - 1
        for i in np.unique(owners_B):
            here_B = owners_B == i
            yield self.parts[i], here_B, ids_B[here_B] - starts[i]


@dataclass(frozen=True)
class Position:
    """How many instances have been consumed, over all processes and epochs."""

    consumed: int = 0


@dataclass(frozen=True)
class BatchLoader:
    """Batches of `batch_size` instances over all processes; this one gets its `rank`'s share of each.

    A batch may straddle two epochs. Raises ValueError when the batch cannot be shared out equally.
    """

    instances: InstanceSource
    batch_size: int
    seed: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not len(self.instances):
            raise ValueError("there are no instances to take batches from")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not in [0, {self.world_size})")
        if self.batch_size < 1 or self.batch_size % self.world_size:
            raise ValueError(
                f"batch size {self.batch_size} is not a positive multiple of {self.world_size} processes"
            )

    def at(self, position: Position) -> tuple[NDArray[np.int64], NDArray[np.int64], Position]:
        """This rank's share of the batch at `position`, and where the next batch begins.

        Returns:
            tokens int64 (batch_size / world_size, length + 1); the instances' ids int64
            (batch_size / world_size,); the next position.
        """
        share = self.batch_size // self.world_size
        first = position.consumed + self.rank * share
        ids = self.ids(np.arange(first, first + share))
        return self.instances.read(ids), ids, Position(position.consumed + self.batch_size)

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The instances that come at `places` of the endless sequence of epochs."""
        source = self.instances
        if isinstance(source, JoinedInstances) and source.weights:
            return mixed(places, tuple(map(len, source.parts)), source.weights, self.seed)
        return shuffled(places, len(source), self.seed)


def shuffled(places: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Which of `size` things comes at each place of endless epochs, each of them shuffled by itself."""
    epochs, indices = np.divmod(places, size)
    ids = np.empty_like(places)
    for epoch in np.unique(epochs):
        ids[epochs == epoch] = permute(indices[epochs == epoch], size, (*key, int(epoch)))
    return ids


def mixed(
    places: NDArray[np.int64], sizes: Sequence[int], weights: Sequence[float], seed: int
) -> NDArray[np.int64]:
    """Which instance comes at each place of a mixture of sources of some sizes, all of them numbered through.

    An epoch gives source i round(weights[i] · sizes[i]) places, at least one, shuffled among the others'. The
    source fills them from an endless sequence of its own, so that what one epoch leaves out the next has.
    """
    shares = np.array([max(1, round(w * n)) for w, n in zip(weights, sizes, strict=True)])
    ends, starts = np.cumsum(shares), np.cumsum([0, *sizes])
    slots = shuffled(places, int(ends[-1]), seed)
    owners = np.searchsorted(ends, slots, side="right")
    turns = places // ends[-1] * shares[owners] + slots - (ends - shares)[owners]
    ids = np.empty_like(places)
    for i in np.unique(owners):
        here = owners == i
        ids[here] = starts[i] + shuffled(turns[here], sizes[i], seed, int(i) + 1)
    return ids


def permute(index: ArrayLike, size: int, key: int | Sequence[int]) -> NDArray[np.int64]:
    """A keyed permutation of 0..size-1, applied to the given indices without building a table.

    A Feistel network permutes the smallest power of four not below `size`; an index that lands outside is
    sent through again until it lands inside (cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary
    finite domains"), fewer than four times on average. About 70 ns an index in large arrays.

    Args:
        index: integers in [0, size), any shape.
        size: how many there are to permute, at least 1.
        key: one or several non-negative integers; another key, another permutation.

    Returns:
        int64 of `index`'s shape, a bijection on [0, size).

    Raises:
        ValueError: an index is out of range.
    """
    values = np.array(index, np.int64)
    if values.size and not 0 <= values.min() <= values.max() < size:
        raise ValueError(f"indices must lie in [0, {size}), got {values.min()} to {values.max()}")
    keys = np.asarray(np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64), np.uint64)
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    permuted = _feistel(values.ravel().astype(np.uint64), half_bits, keys)
    while len(outside := np.flatnonzero(permuted >= size)):
        permuted[outside] = _feistel(permuted[outside], half_bits, keys)
    return permuted.astype(np.int64).reshape(values.shape)


def _feistel(
    values: NDArray[np.uint64], half_bits: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A permutation of [0, 4**half_bits): each round is undone by the same round, whatever `_mix` is."""
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half_bits) | right


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64 bits: the finaliser of MurmurHash3."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))
