"""Permutations of instances computed from an index and a key, without a table of the whole epoch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6


def shuffled_epochs(places: NDArray[np.int64], size: int, *key: int) -> NDArray[np.int64]:
    """Which of `size` items is at each place of an endless sequence of epochs, each shuffled separately."""
    epochs, indices = np.divmod(places, size)
    ids = np.empty_like(places)
    for epoch in np.unique(epochs):
        ids[epochs == epoch] = permute(indices[epochs == epoch], size, (*key, int(epoch)))
    return ids


def epoch_shares(sizes: Sequence[int], weights: Sequence[float]) -> NDArray[np.int64]:
    """How many places each source has in an epoch of a mixture: round(weight · size), at least one."""
    return np.array([max(1, round(w * n)) for w, n in zip(weights, sizes, strict=True)], np.int64)


def mixed_epochs(
    places: NDArray[np.int64], sizes: Sequence[int], weights: Sequence[float], seed: int
) -> NDArray[np.int64]:
    """Which instance is at each place of a mixture of sources, numbered consecutively over the sources.

    An epoch's places are shared out by `epoch_shares`, and shuffled. A source fills its places from an
    endless sequence of its own, so that an epoch goes on with the instances that the previous one left out.
    """
    shares = epoch_shares(sizes, weights)
    ends, starts = np.cumsum(shares), np.cumsum([0, *sizes])
    slots = shuffled_epochs(places, int(ends[-1]), seed)
    owners = np.searchsorted(ends, slots, side="right")
    turns = places // ends[-1] * shares[owners] + slots - (ends - shares)[owners]
    ids = np.empty_like(places)
    for i in np.unique(owners):
        here = owners == i
        ids[here] = starts[i] + shuffled_epochs(turns[here], sizes[i], seed, int(i) + 1)
    return ids


def permute(indices: NDArray[np.int64], size: int, key: int | Sequence[int]) -> NDArray[np.int64]:
    """A keyed permutation of 0..size-1, applied to indices in [0, size) without building a table.

    A Feistel network permutes the smallest power of four not below `size`; an index that lands outside is
    permuted again until it lands inside (cycle walking: Black & Rogaway 2002, "Ciphers with arbitrary finite
    domains"), fewer than four times on average. About 70 ns an index in large arrays.

    The key is hashed by numpy's SeedSequence, for which zeros at the end do not count: (3,) and (3, 0) give
    the same permutation, (3,) and (3, 1) different ones.
    """
    keys = np.asarray(np.random.SeedSequence(key).generate_state(ROUNDS, np.uint64), np.uint64)
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    permuted = _feistel(indices.astype(np.uint64), half_bits, keys)
    while len(outside := np.flatnonzero(permuted >= size)):
        permuted[outside] = _feistel(permuted[outside], half_bits, keys)
    return permuted.astype(np.int64)


def _feistel(
    values: NDArray[np.uint64], half_bits: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A permutation of [0, 4**half_bits): each round can be inverted, whatever `_mix` is."""
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
