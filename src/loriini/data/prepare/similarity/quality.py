"""The quality of orders, measured on finished arrays.

Axes: N documents, D embedding width, M ordered documents, P pieces.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.arrays import VECTORS, Ids, Vectors
from loriini.data.prepare.similarity.walks import random_order
from loriini.data.prepare.text.heldout import left_out
from loriini.data.prepare.tokenized.instances import open_instances
from loriini.data.prepare.tokenized.pieces import Cut, Pieces, cut_instances
from loriini.data.prepare.tokenized.tokens import open_tokens

FLOAT32_ROWS = 1 << 16
"""Vectors held as float32 at once."""
INSTANCES_AT_ONCE = 4096
"""Instances whose pieces are in memory at once; their means are summed, then added to the total."""
SAMPLED_INSTANCES = 1 << 16
"""About this many of a larger corpus are measured: the first of every block of INSTANCES_AT_ONCE."""


def instance_cosines(stages: Mapping[str, Artifact], method: str, seed: int) -> dict[str, float | None]:
    """`shared_instance_cosine` of a corpus in its order, `method`, and in random order; None for NaN.

    Memory: at most 32 bytes per document.
    """
    vectors_ND: NDArray[np.float16] = stages["embeddings"].array(VECTORS)
    excluded = left_out(stages["duplicates"], stages["heldout"])
    instances, offsets = open_instances(stages["instances"]), open_tokens(stages["tokens"]).offsets
    shuffled = random_order(len(vectors_ND), seed, excluded)
    cosines = {
        "random": shared_instance_cosine(cut_instances(offsets, shuffled, instances.length + 1), vectors_ND),
        method: shared_instance_cosine(instances.pieces, vectors_ND),
    }
    return {order: None if math.isnan(cosine) else cosine for order, cosine in cosines.items()}


def shared_instance_cosine(instances: Cut | Pieces, vectors_ND: Vectors) -> float:
    """Mean cosine between documents that share an instance.

    For each instance with m ≥ 2 documents, the mean over its pairs of distinct documents; then the mean over
    those instances (NaN when there are none). Documents count equally, however many of their tokens the
    instance holds. With unit vectors v the sum over ordered pairs is |Σv|² − Σ|v|². Of more than
    SAMPLED_INSTANCES, a sample is measured.

    Memory: the pieces of INSTANCES_AT_ONCE instances, in addition to the arguments.
    """
    total, count = 0.0, 0
    share = min(1, SAMPLED_INSTANCES / max(len(instances), 1))
    measured = math.ceil(INSTANCES_AT_ONCE * share)
    for first in range(0, len(instances), INSTANCES_AT_ONCE):
        pieces = instances.block(first, min(first + measured, len(instances)))
        means = [
            _mean_cosines(block_I, pieces.documents_P, vectors_ND) for block_I in _blocks(pieces.starts_I)
        ]
        total += float(np.concatenate(means).sum(dtype=np.float64))
        count += sum(map(len, means))
    return total / count if count else float("nan")


def _blocks(starts_I: Ids) -> Iterator[Ids]:
    """Blocks of instances of at most FLOAT32_ROWS pieces, or one instance: their starts, and the last end."""
    first = 0
    while first < len(starts_I) - 1:
        fitting = int(np.searchsorted(starts_I, starts_I[first] + FLOAT32_ROWS, side="right")) - 1
        last = max(first + 1, fitting)
        yield starts_I[first : last + 1]
        first = last


def _mean_cosines(starts_I: Ids, documents_P: Ids, vectors_ND: Vectors) -> NDArray[np.floating]:
    """For each instance with at least two documents, the mean cosine over their pairs."""
    vectors_PD = vectors_ND[documents_P[starts_I[0] : starts_I[-1]]].astype(np.float32)
    sums_ID, squares_I = (
        np.add.reduceat(summands, starts_I[:-1] - starts_I[0])
        for summands in (vectors_PD, np.square(vectors_PD).sum(1))
    )
    sizes_I = np.diff(starts_I)
    shared_I = sizes_I >= 2
    return (np.square(sums_ID).sum(1) - squares_I)[shared_I] / (sizes_I * (sizes_I - 1))[shared_I]
