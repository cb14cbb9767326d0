"""The `order` stage: a permutation of the documents, random or by a walk from neighbour to neighbour.

Axes: N documents, M documents that are not left out.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loriini.data.jobs.artifact import Artifact, build_artifact
from loriini.data.prepare.arrays import NEIGHBORS, ORDER, Ids
from loriini.data.prepare.settings import OrderMethod
from loriini.data.prepare.similarity.walks import (
    DEFAULT_WINDOW,
    LOOK_BACK,
    count_jumps,
    plain_walk,
    random_order,
    similar_walk,
)
from loriini.data.prepare.text.heldout import left_out


def write_order(
    folder: Path,
    neighbors: Artifact,
    duplicates: Artifact,
    heldout: Artifact,
    order: OrderMethod,
    seed: int,
    window: int = DEFAULT_WINDOW,
) -> Artifact:
    """Write `order.npy`: int64 (M,), the ids of documents in the order they are to be read.

    Every order leaves out the ids in `duplicates` and `heldout`. Counts: `documents_in` (N), `documents` (M),
    and for a walk `restarts` (jumps to a document that is not a neighbour of any document looked back at) and
    `jumps` (adjacent pairs that are not linked). `window` is for `similar_walk`.
    """
    settings = {"order": order, "seed": seed, "documents": neighbors.counts["documents"]}
    if order == "similar":
        settings["window"] = window
    inputs = {"neighbors": neighbors.digest, "duplicates": duplicates.digest, "heldout": heldout.digest}
    write = partial(_write, neighbors, left_out(duplicates, heldout), order, seed, window)
    return build_artifact(folder, settings, inputs, write)


def window_for(documents_per_instance: float) -> int:
    """How many documents should vote in `similar_walk`: half of those in an instance, from 1 to 50.

    With too few, a walk drifts away within an instance; with too many, documents of earlier instances hold it
    back.
    """
    return min(max(1, round(documents_per_instance / 2)), LOOK_BACK)


def _write(
    neighbors: Artifact, excluded: Ids, order: str, seed: int, window: int, folder: Path
) -> dict[str, Any]:
    neighbors_NK = neighbors.array(NEIGHBORS)
    counts = {"documents_in": len(neighbors_NK), "documents": len(neighbors_NK) - len(excluded)}
    if order == "random":
        order_M = random_order(len(neighbors_NK), seed, excluded)
    else:
        similar = order == "similar"
        walk = partial(similar_walk, window=window) if similar else plain_walk
        order_M = walk(neighbors_NK, seed, excluded)
        counts["restarts"] = count_jumps(order_M, neighbors_NK, LOOK_BACK if similar else 1)
        counts["jumps"] = count_jumps(order_M, neighbors_NK)
    np.save(folder / ORDER, order_M)
    return counts
