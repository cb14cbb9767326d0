"""The quality of neighbours and orders, measured on finished arrays.

Axes: N documents, K neighbours, D embedding width, M ordered documents, Q sampled documents, P pieces.
"""

import math
from collections.abc import Iterator, Mapping

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.array_types import Ids, Neighbors, Vectors
from loriini.data.prepare.similarity.walks import random_order
from loriini.data.prepare.text.heldout import left_out
from loriini.data.prepare.tokenized.instances import open_instances
from loriini.data.prepare.tokenized.pieces import Cut, Pieces, cut_instances
from loriini.data.prepare.tokenized.tokens import open_tokens

NEAREST = 10
"""Neighbours whose recall is measured."""
FLOAT32_ROWS = 1 << 16
"""Vectors held as float32 at once."""
INSTANCES_AT_ONCE = 4096
"""Instances whose pieces are held, and whose means are added before they are added to the total."""
SAMPLED_INSTANCES = 1 << 16
"""Of more instances, about as many are measured: the first of every INSTANCES_AT_ONCE."""


def recall(neighbors_NK: Neighbors, vectors_ND: Vectors, sample: int = 1000) -> float:
    """Share of the NEAREST documents that are among a document's first NEAREST neighbours.

    Mean over `sample` documents drawn without replacement, against exact search through all N. If there are
    fewer than NEAREST neighbours or other documents, all of them count; NaN if there are none.
    """
    count, columns = neighbors_NK.shape
    at = min(NEAREST, columns, count - 1)
    if at < 1:
        return float("nan")
    ids_Q = np.sort(np.random.default_rng(0).choice(count, min(sample, count), replace=False))
    pairs = zip(neighbors_NK[ids_Q, :at], exact_neighbors(vectors_ND, ids_Q, at), strict=True)
    return float(np.mean([len(np.intersect1d(first, exact)) / at for first, exact in pairs]))


def exact_neighbors(vectors_ND: Vectors, ids_Q: Ids, k: int) -> Ids:
    """The `k` < N nearest of all documents to each of some, itself excluded; int64 (Q, k)."""
    queries_QD = vectors_ND[ids_Q].astype(np.float32)
    best_QK = np.empty((len(ids_Q), 0), np.float32)
    ids_QK = np.empty((len(ids_Q), 0), np.int64)
    for start in range(0, len(vectors_ND), FLOAT32_ROWS):
        rows_BD = vectors_ND[start : start + FLOAT32_ROWS].astype(np.float32)
        found_QK, places_QK = faiss.knn(queries_QD, rows_BD, k + 1, faiss.METRIC_INNER_PRODUCT)
        places_QK = np.where(places_QK < 0, -1, places_QK + start)
        found_QK[(places_QK < 0) | (places_QK == ids_Q[:, None])] = -np.inf
        best_QK, ids_QK = np.hstack([best_QK, found_QK]), np.hstack([ids_QK, places_QK])
        nearest_first = np.argsort(-best_QK, axis=1, kind="stable")[:, :k]
        best_QK = np.take_along_axis(best_QK, nearest_first, 1)
        ids_QK = np.take_along_axis(ids_QK, nearest_first, 1)
    return ids_QK


def adjacent_cosines(order_M: Ids, vectors_ND: Vectors, sample: int = 1 << 20) -> NDArray[np.float32]:
    """Cosine of each document of an order and the next, float32 (M - 1,), or of a sample of them."""
    places = np.arange(max(len(order_M) - 1, 0))
    if len(places) > sample:
        places = np.sort(np.random.default_rng(0).choice(places, sample, replace=False))
    cosines = [np.empty(0, np.float32)]
    for start in range(0, len(places), FLOAT32_ROWS):
        block = places[start : start + FLOAT32_ROWS]
        here_BD, next_BD = (vectors_ND[order_M[place]].astype(np.float32) for place in (block, block + 1))
        cosines.append((here_BD * next_BD).sum(1))
    return np.concatenate(cosines)


def instance_cosines(stages: Mapping[str, Artifact], method: str, seed: int) -> dict[str, float | None]:
    """`shared_instance_cosine` of a corpus in its order, `method`, and in random order; None for NaN.

    Memory: at most 32 bytes per document.
    """
    vectors_ND: NDArray[np.float16] = stages["embeddings"].array("embeddings.npy")
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
    """The starts of consecutive instances of at most FLOAT32_ROWS pieces, or of one, and where they end."""
    first = 0
    while first < len(starts_I) - 1:
        fitting = int(np.searchsorted(starts_I, starts_I[first] + FLOAT32_ROWS, side="right")) - 1
        last = max(first + 1, fitting)
        yield starts_I[first : last + 1]
        first = last


def _mean_cosines(starts_I: Ids, documents_P: Ids, vectors_ND: Vectors) -> NDArray[np.floating]:
    """The mean over the pairs of each of some instances with at least two documents."""
    vectors_PD = vectors_ND[documents_P[starts_I[0] : starts_I[-1]]].astype(np.float32)
    sums_ID, squares_I = (
        np.add.reduceat(summands, starts_I[:-1] - starts_I[0])
        for summands in (vectors_PD, np.square(vectors_PD).sum(1))
    )
    sizes_I = np.diff(starts_I)
    shared_I = sizes_I >= 2
    return (np.square(sums_ID).sum(1) - squares_I)[shared_I] / (sizes_I * (sizes_I - 1))[shared_I]
