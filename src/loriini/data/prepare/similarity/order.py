"""The `order` stage: a permutation of the documents, random, by a walk from neighbour to neighbour, or given.

Axes: N documents, M documents that are not left out.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import Artifact, build_artifact, file_hash
from loriini.data.prepare.array_types import Ids
from loriini.data.prepare.settings import OrderFile
from loriini.data.prepare.similarity.walks import (
    DEFAULT_WINDOW,
    LOOK_BACK,
    count_jumps,
    plain_walk,
    random_order,
    similar_walk,
)
from loriini.data.prepare.text.heldout import left_out

GIVEN = "given"
"""The method of an order that is read from a file."""


def write_order(
    folder: Path,
    neighbors: Artifact,
    duplicates: Artifact,
    heldout: Artifact,
    order: str,
    seed: int,
    window: int = DEFAULT_WINDOW,
) -> Artifact:
    """Write `order.npy`: int64 (M,), the ids of documents in the order they are to be read.

    `order` is an `OrderMethod`, or a file with the ids of all documents. Every order leaves out the ids in
    `duplicates` and `heldout`. Counts: `documents_in` (N), `documents` (M), and for a walk `restarts` (jumps
    to a document that is not a neighbour of any document looked back at) and `jumps` (adjacent pairs that are
    not linked). `window` is for `similar_walk`. InputError for a file that does not hold each id once.
    """
    method = order_method(order)
    settings = {"order": method, "seed": seed, "documents": neighbors.counts["documents"]}
    if method == "similar":
        settings["window"] = window
    if method == GIVEN:
        settings["order_file"] = file_hash(Path(order))
    inputs = {"neighbors": neighbors.digest, "duplicates": duplicates.digest, "heldout": heldout.digest}
    write = partial(_write, neighbors, left_out(duplicates, heldout), order, seed, window)
    return build_artifact(folder, settings, inputs, write)


def order_method(order: str) -> str:
    """The name of an order: its method, or `given` for a file."""
    return GIVEN if OrderFile().admit(order) else order


def window_for(documents_per_instance: float) -> int:
    """How many documents should vote in `similar_walk`: half of an instance's, from 1 to 50.

    With too few, a walk drifts away within an instance; with too many, documents of earlier instances hold it
    back.
    """
    return min(max(1, round(documents_per_instance / 2)), LOOK_BACK)


def _write(
    neighbors: Artifact, excluded: Ids, order: str, seed: int, window: int, folder: Path
) -> dict[str, Any]:
    neighbors_NK = neighbors.array("neighbors.npy")
    counts = {"documents_in": len(neighbors_NK), "documents": len(neighbors_NK) - len(excluded)}
    if order == "random":
        order_M = random_order(len(neighbors_NK), seed, excluded)
    elif order_method(order) == GIVEN:
        ids = given_order(Path(order), len(neighbors_NK))
        order_M = ids[~np.isin(ids, excluded)]
    else:
        similar = order == "similar"
        walk = partial(similar_walk, window=window) if similar else plain_walk
        order_M = walk(neighbors_NK, seed, excluded)
        counts["restarts"] = count_jumps(order_M, neighbors_NK, LOOK_BACK if similar else 1)
        counts["jumps"] = count_jumps(order_M, neighbors_NK)
    np.save(folder / "order.npy", order_M)
    return counts


def given_order(path: Path, documents: int) -> Ids:
    """The ids in a NumPy file. InputError unless each document's is there once."""
    ids = read_ids(path)
    if len(ids) != documents:
        raise InputError(f"--order {path}: holds {len(ids)} ids; give 0 to {documents - 1}, each once")
    times = np.bincount(ids[(ids >= 0) & (ids < documents)], minlength=documents)
    if len(wrong := np.flatnonzero(times != 1)):
        first = wrong[0]
        raise InputError(f"--order {path}: holds document {first} {times[first]} times; give each id once")
    return ids


def read_ids(path: Path) -> Ids:
    """The integers of a NumPy file, int64 (N,). InputError for anything else."""
    try:
        with open(path, "rb") as file:
            ids = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"--order {path}: cannot be read ({error.strerror}); check the path") from error
    except Exception as error:  # of many kinds, by what is damaged
        raise InputError(f"--order {path}: not a NumPy array ({error}); write it with numpy.save") from error
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"--order {path}: holds {ids.dtype} of shape {ids.shape}; give one axis of integers")
    return ids.astype(np.int64)
