"""Greedy walks through a nearest-neighbour graph: permutations that put similar documents side by side.

`plain_walk` is Lory's (Appendix C), after In-Context Pretraining (Shi et al. 2024), which starts where
documents have few links. `similar_walk` is the default here: it starts there too, looks back before it jumps,
and goes where the last documents agree. Both are one compiled loop: O(N·K) time, at most 32 bytes per
document beyond the neighbours.

Axes: N documents, K neighbours, M documents that take part.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from loriini.data.prepare.arrays import Ids, Neighbors

_Compiled = TypeVar("_Compiled", bound=Callable[..., Any])

LOOK_BACK = 50
"""Documents whose neighbours `similar_walk` searches before it jumps; `plain_walk` searches only the last."""
VOTES = np.int16
"""The type of a document's count of votes."""
DEFAULT_WINDOW = 3
"""Documents that vote in `similar_walk` when the instances are not known."""


def random_order(documents: int, seed: int = 0, left_out: ArrayLike = ()) -> Ids:
    """A seeded permutation of the ids 0 … documents - 1 without those in `left_out`; int64 (M,)."""
    permutation = np.random.default_rng(seed).permutation(documents)
    left_out = np.asarray(left_out, np.int64)
    if not len(left_out):
        return permutation
    keep = np.ones(documents, bool)
    keep[left_out] = False
    return permutation[keep[permutation]]


def plain_walk(neighbors_NK: Neighbors, seed: int = 0, left_out: ArrayLike = ()) -> Ids:
    """Walk as Lory does (Appendix C).

    From each document go to its most similar neighbour not yet used; when all are used, to an unused document
    in seeded random order.

    Args:
        neighbors_NK: ids, the most similar first; -1 for none. A document's own id is ignored.
        seed: for the order of the starts.
        left_out: ids that take no part.

    Returns:
        int64 (M,): every id not left out, exactly once.

    Raises:
        ValueError: `neighbors_NK` is not a matrix of integers in [-1, N).
    """
    neighbors_NK = _checked(neighbors_NK)
    return _walk(neighbors_NK, random_order(len(neighbors_NK), seed, left_out), 1, 1)


def similar_walk(
    neighbors_NK: Neighbors, seed: int = 0, left_out: ArrayLike = (), window: int = DEFAULT_WINDOW
) -> Ids:
    """Walk as `plain_walk`, with more similar documents in an instance and fewer jumps.

    - Of a document's unused neighbours, take the one that is a neighbour of most of the last `window`
      documents, in a tie the most similar: the walk stays near where it is instead of drifting.
    - If there is none, look for one among the neighbours of the last 50 documents, the latest first.
    - Start and restart from the unused document with the fewest links (in-degree plus out-degree, ties in
      seeded random order), so that documents that are hard to reach are not left for the end.

    Args:
        neighbors_NK, seed, left_out: as in `plain_walk`.
        window: documents that vote; half of those that an instance holds is best (`window_for`). With 1, the
            walk always goes to the most similar neighbour.

    Returns:
        As `plain_walk`. ValueError also for a `window` below 1 or above 32,767.
    """
    most = np.iinfo(VOTES).max
    if not 1 <= window <= most:
        raise ValueError(f"window is {window}; it must be 1 to {most}")
    neighbors_NK = _checked(neighbors_NK)
    shuffled_M = random_order(len(neighbors_NK), seed, left_out)
    fewest_first = np.argsort(_degrees(neighbors_NK)[shuffled_M], kind="stable")
    return _walk(neighbors_NK, shuffled_M[fewest_first], LOOK_BACK, window)


def count_jumps(order_M: Ids, neighbors_NK: Neighbors, look_back: int = 1) -> int:
    """Count the documents that are a neighbour of none of the `look_back` documents before them.

    With a walk's own look-back these are its restarts, with 1 the adjacent pairs that are not linked.
    """
    return int(_count_jumps(order_M, _checked(neighbors_NK), look_back))


def _checked(neighbors_NK: Neighbors) -> Neighbors:
    """The same memory as a plain array, after checking its shape, type and range."""
    neighbors_NK = np.asarray(neighbors_NK).view(np.ndarray)
    if neighbors_NK.ndim != 2 or not np.issubdtype(neighbors_NK.dtype, np.signedinteger):
        actual = f"{neighbors_NK.dtype}{neighbors_NK.shape}"
        raise ValueError(f"neighbors_NK: expected a matrix of signed integers, got {actual}")
    if neighbors_NK.size:
        least, most = neighbors_NK.min(), neighbors_NK.max()
        if least < -1 or most >= len(neighbors_NK):
            raise ValueError(
                f"neighbors_NK: ids must lie in [-1, {len(neighbors_NK)}), got {least} to {most}"
            )
    return neighbors_NK


def _compiled(function: _Compiled) -> _Compiled:
    """Numba's njit, without the cache on disk where no folder for it can be written."""
    try:
        return cast(_Compiled, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(_Compiled, njit(nogil=True)(function))


@_compiled
def _walk(neighbors_NK: Neighbors, starts_M: Ids, look_back: int, window: int) -> Ids:
    """Walk through the documents in `starts_M`, with the earliest unused one at each (re)start.

    A used document stays used, so a row need not be read again before the place where it was left: `slot`
    keeps that place for the last `look_back` documents. `votes` counts, for each document, the rows of the
    last `window` documents that it is in.
    """
    columns = neighbors_NK.shape[1]
    used = np.ones(neighbors_NK.shape[0], np.bool_)
    used[starts_M] = False
    votes = np.zeros(neighbors_NK.shape[0] if window > 1 else 0, VOTES)
    order = np.empty(len(starts_M), np.int64)
    slot = np.zeros(look_back, np.int64)
    cursor = 0
    for length in range(len(order)):
        following = -1
        for place in range(length - 1, max(length - 1 - look_back, -1), -1):
            row = neighbors_NK[order[place]]
            column = slot[place % look_back]
            while column < columns and (row[column] < 0 or used[row[column]]):
                column += 1
            slot[place % look_back] = column
            if column < columns:
                following = row[column]
                for later in range(column + 1, columns if window > 1 else 0):
                    other = row[later]
                    if other >= 0 and not used[other] and votes[other] > votes[following]:
                        following = other
                break
        if following < 0:
            while used[starts_M[cursor]]:
                cursor += 1
            following = starts_M[cursor]
        order[length] = following
        used[following] = True
        slot[length % look_back] = 0
        if window > 1:
            _count(votes, neighbors_NK[following], 1)
            if length >= window:
                _count(votes, neighbors_NK[order[length - window]], -1)
    return order


@_compiled
def _count(votes: NDArray[np.int16], row: Neighbors, change: int) -> None:
    for document in row:
        if document >= 0:
            votes[document] += change


@_compiled
def _degrees(neighbors_NK: Neighbors) -> NDArray[np.int32]:
    """Links from and to each document, int32 (N,); a document's own id does not count."""
    degrees = np.zeros(neighbors_NK.shape[0], np.int32)
    for document in range(neighbors_NK.shape[0]):
        for neighbor in neighbors_NK[document]:
            if neighbor >= 0 and neighbor != document:
                degrees[document] += 1
                degrees[neighbor] += 1
    return degrees


@_compiled
def _count_jumps(order_M: Ids, neighbors_NK: Neighbors, look_back: int) -> int:
    count = 0
    for place in range(1, len(order_M)):
        linked = False
        for before in range(place - 1, max(place - 1 - look_back, -1), -1):
            for neighbor in neighbors_NK[order_M[before]]:
                if neighbor == order_M[place]:
                    linked = True
                    break
            if linked:
                break
        count += not linked
    return count
