"""neighbours → a permutation of the documents: random, or a greedy walk from neighbour to neighbour.

`plain_walk` is the papers' (Lory §3.2, after In-Context Pretraining, Shi et al. 2024, Algorithm 1);
`similar_walk` is the default here: it starts where documents have few links, looks back before it jumps, and
goes where the last documents agree. Both run in one compiled loop, O(N·K) time and at most 24 bytes a
document beyond the neighbours.

Axes: N documents, K neighbours a document, M documents that take part.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from loriini.errors import InputError
from loriini.jobs.artifact import Artifact, build_artifact

Ids = NDArray[np.int64]
Compiled = TypeVar("Compiled", bound=Callable[..., Any])
Method = Literal["similar", "papers", "random"]
METHODS = get_args(Method)

LOOK_BACK = {"similar": 50, "papers": 1}
"""How many of the last documents of a walk are searched for an unused neighbour, by method."""
WINDOW = 3
"""How many of the last documents vote on where `similar_walk` goes, where nothing is known of instances."""


def write_order(
    folder: Path,
    neighbors: Artifact | None,
    documents: int,
    method: Method = "similar",
    seed: int = 0,
    duplicates: Artifact | None = None,
    window: int = WINDOW,
) -> Artifact:
    """Write `order.npy`: int64 (M,), the ids of `documents` documents in the order they are to be read.

    The ids in the artefact `duplicates` are left out. Counts: `documents_in` (N), `documents` (M), and for a
    walk `restarts` (jumps to a document that is no neighbour of those looked back at) and `jumps` (adjacent
    pairs that are not linked). Raises InputError when a walk has no neighbours or the method is unknown.
    """
    if method not in METHODS:
        raise InputError(f"order {method!r} is unknown; choose one of: {', '.join(METHODS)}")
    if method != "random" and neighbors is None:
        raise InputError(f"order {method!r} needs neighbours; run that stage first or choose order 'random'")
    inputs = {"neighbors": neighbors, "duplicates": duplicates}

    def write(temporary: Path) -> dict[str, Any]:
        left_out = np.load(duplicates.path("ids.npy")) if duplicates else np.empty(0, np.int64)
        counts = {"documents_in": documents, "documents": documents - len(left_out)}
        if method == "random" or neighbors is None:
            order = random_order(documents, seed, left_out)
        else:
            neighbors_NK = np.load(neighbors.path("neighbors.npy"), mmap_mode="r")
            if len(neighbors_NK) != documents:
                raise InputError(f"{neighbors.folder}: has {len(neighbors_NK)} documents, not {documents}")
            if method == "similar":
                order = similar_walk(neighbors_NK, seed, left_out, window)
            else:
                order = plain_walk(neighbors_NK, seed, left_out)
            counts |= {
                "restarts": restarts(order, neighbors_NK, LOOK_BACK[method]),
                "jumps": restarts(order, neighbors_NK),
            }
        np.save(temporary / "order.npy", order)
        return counts

    voting = {"window": window} if method == "similar" else {}
    return build_artifact(
        folder,
        {"method": method, "seed": seed, "documents": documents, **voting},
        {name: artifact.digest for name, artifact in inputs.items() if artifact},
        write,
    )


def window_for(documents_per_instance: float) -> int:
    """How many documents should vote: half of an instance's, from 1 to 50.

    Too few and a walk drifts away within an instance; too many and it is held back by documents that the
    instance no longer holds.
    """
    return min(max(1, round(documents_per_instance / 2)), LOOK_BACK["similar"])


def random_order(documents: int, seed: int = 0, left_out: ArrayLike = ()) -> Ids:
    """A seeded permutation of the ids 0..documents-1 without those in `left_out`; int64 (M,)."""
    permutation = np.random.default_rng(seed).permutation(documents)
    left_out = np.asarray(left_out, np.int64)
    if not len(left_out):
        return permutation
    keep = np.ones(documents, bool)
    keep[left_out] = False
    return permutation[keep[permutation]]


def plain_walk(neighbors_NK: NDArray[np.integer], seed: int = 0, left_out: ArrayLike = ()) -> Ids:
    """The papers' greedy walk through a nearest-neighbour graph.

    From a document go to its first neighbour not yet used; when all are used, start again from an unused
    document, in seeded random order. (Lory §3.2: "traverse the document graph to concatenate documents".)

    Args:
        neighbors_NK: ids, the most similar first; -1 for none. A document's own id is ignored.
        seed: of the order of the starts.
        left_out: ids that take no part.

    Returns:
        int64 (M,): every id not left out, exactly once.

    Raises:
        ValueError: `neighbors_NK` is not a matrix of integers in [-1, N).
    """
    neighbors_NK = _checked(neighbors_NK)
    return _walk(neighbors_NK, random_order(len(neighbors_NK), seed, left_out), LOOK_BACK["papers"], 1)


def similar_walk(
    neighbors_NK: NDArray[np.integer], seed: int = 0, left_out: ArrayLike = (), window: int = WINDOW
) -> Ids:
    """The default greedy walk: as `plain_walk`, with documents of an instance more alike, and fewer jumps.

    It differs in three ways. Of a document's unused neighbours it takes the one that is a neighbour of most
    of the last `window` documents, of equals the most similar; so a walk stays near where it is instead of
    drifting on. When there is none it looks for one among the neighbours of the last 50 documents, latest
    first. And it starts, and starts again, from the unused document with the fewest links (in-degree plus
    out-degree; ties in seeded random order), so that hard-to-reach documents are not left for the end.

    Args:
        neighbors_NK, seed, left_out: as in `plain_walk`.
        window: how many documents vote; half of those that an instance holds is best (`window_for`). With 1
            it goes to the most similar one, always.

    Returns:
        As `plain_walk`. ValueError also for a `window` below 1.
    """
    if window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    neighbors_NK = _checked(neighbors_NK)
    starts_M = _by_degree(_degrees(neighbors_NK), random_order(len(neighbors_NK), seed, left_out))
    return _walk(neighbors_NK, starts_M, LOOK_BACK["similar"], window)


def restarts(order_M: Ids, neighbors_NK: NDArray[np.integer], look_back: int = 1) -> int:
    """How many documents, after the first, are in no row of the `look_back` documents before them.

    For a walk's own look-back these are exactly its restarts; with 1 it counts the adjacent pairs not linked.
    """
    return int(_restarts(order_M, _checked(neighbors_NK), look_back))


def _checked(neighbors_NK: NDArray[np.integer]) -> NDArray[np.integer]:
    """The same memory as a plain array, after checking its shape, type and range."""
    neighbors_NK = np.asarray(neighbors_NK).view(np.ndarray)
    if neighbors_NK.ndim != 2 or not np.issubdtype(neighbors_NK.dtype, np.signedinteger):
        found = f"{neighbors_NK.dtype}{neighbors_NK.shape}"
        raise ValueError(f"neighbors_NK: expected a matrix of signed integers, got {found}")
    if neighbors_NK.size:
        least, most = neighbors_NK.min(), neighbors_NK.max()
        if least < -1 or most >= len(neighbors_NK):
            raise ValueError(
                f"neighbors_NK: ids must lie in [-1, {len(neighbors_NK)}), got {least} to {most}"
            )
    return neighbors_NK


def _compiled(function: Compiled) -> Compiled:
    """Numba's njit, without the cache on disk where no folder for it can be written."""
    try:
        return cast(Compiled, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(Compiled, njit(nogil=True)(function))


@_compiled
def _walk(neighbors_NK: NDArray[np.integer], starts_M: Ids, look_back: int, window: int) -> Ids:
    """Walk through the documents in `starts_M`, the earliest unused of which is taken at each (re)start.

    A document once used stays so, hence a row need not be read again before the place where it was left:
    `slot` keeps that place for the last `look_back` documents. `votes` counts, for each document, the rows of
    the last `window` documents that it is in.
    """
    columns = neighbors_NK.shape[1]
    used = np.ones(neighbors_NK.shape[0], np.bool_)
    used[starts_M] = False
    votes = np.zeros(neighbors_NK.shape[0] if window > 1 else 0, np.int16)
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
def _count(votes: NDArray[np.int16], row: NDArray[np.integer], change: int) -> None:
    for document in row:
        if document >= 0:
            votes[document] += change


@_compiled
def _degrees(neighbors_NK: NDArray[np.integer]) -> NDArray[np.int32]:
    """Links from and to each document, int32 (N,); a document's own id does not count."""
    degrees = np.zeros(neighbors_NK.shape[0], np.int32)
    for document in range(neighbors_NK.shape[0]):
        for neighbor in neighbors_NK[document]:
            if neighbor >= 0 and neighbor != document:
                degrees[document] += 1
                degrees[neighbor] += 1
    return degrees


@_compiled
def _by_degree(degrees_N: NDArray[np.int32], documents_M: Ids) -> Ids:
    """`documents_M` by rising degree, equal degrees in the order given: a counting sort."""
    place = np.zeros(degrees_N.max() + 2 if len(degrees_N) else 2, np.int64)
    for document in documents_M:
        place[degrees_N[document] + 1] += 1
    place = np.cumsum(place)
    ordered = np.empty_like(documents_M)
    for document in documents_M:
        degree = degrees_N[document]
        ordered[place[degree]] = document
        place[degree] += 1
    return ordered


@_compiled
def _restarts(order_M: Ids, neighbors_NK: NDArray[np.integer], look_back: int) -> int:
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


def plain_walk_reference(neighbors_NK: NDArray[np.integer], seed: int = 0) -> Ids:
    """`plain_walk` as one would write it first: the naive twin it is tested against."""
    return _walk_reference(neighbors_NK, random_order(len(neighbors_NK), seed), look_back=1, window=1)


def similar_walk_reference(neighbors_NK: NDArray[np.integer], seed: int = 0, window: int = WINDOW) -> Ids:
    """`similar_walk` as one would write it first: the naive twin it is tested against."""
    links = [(a, b) for a, row in enumerate(neighbors_NK) for b in row if b >= 0 and a != b]
    degrees = np.bincount(np.array(links, np.int64).ravel(), minlength=len(neighbors_NK))
    starts = sorted(random_order(len(neighbors_NK), seed), key=lambda document: degrees[document])
    return _walk_reference(neighbors_NK, starts, look_back=50, window=window)


def _walk_reference(neighbors_NK: NDArray[np.integer], starts: ArrayLike, look_back: int, window: int) -> Ids:
    unused = dict.fromkeys(np.asarray(starts, np.int64).tolist())
    order: list[int] = []
    while unused:
        votes = Counter(int(b) for a in order[-window:] for b in neighbors_NK[a] if window > 1)
        rows = ([int(b) for b in neighbors_NK[a] if int(b) in unused] for a in reversed(order[-look_back:]))
        candidates = next((row for row in rows if row), None) or [next(iter(unused))]
        following = max(candidates, key=lambda document: votes[document])
        del unused[following]
        order.append(following)
    return np.array(order, np.int64)
