"""How good neighbours and orders are, measured on finished arrays.

Axes: N documents, K neighbours, D embedding width, M ordered documents, Q sampled documents, P pieces.
"""

import math
from collections.abc import Mapping

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.corpus.arrays import Ids, Neighbors, Vectors
from loriini.corpus.instances import Pieces, cut_instances, open_instances
from loriini.corpus.tokens import open_tokens
from loriini.corpus.walks import random_order
from loriini.jobs.artifact import Artifact

FLOAT32_ROWS = 1 << 16
"""Vectors held as float32 at once."""
INSTANCES_AT_ONCE = 4096


def recall(
    neighbors_NK: Neighbors, vectors_ND: Vectors, at: int = 10, sample: int = 1000, seed: int = 0
) -> float:
    """Share of the `at` nearest documents that are among a document's first `at` neighbours.

    Mean over `sample` documents drawn without replacement, against exact search through all N. `at` is
    reduced to the number of neighbours or other documents; NaN when there are none.
    """
    count, columns = neighbors_NK.shape
    at = min(at, columns, count - 1)
    if at < 1:
        return float("nan")
    ids_Q = np.sort(np.random.default_rng(seed).choice(count, min(sample, count), replace=False))
    pairs = zip(neighbors_NK[ids_Q, :at], exact_neighbors(vectors_ND, ids_Q, at), strict=True)
    return float(np.mean([len(np.intersect1d(found, exact)) / at for found, exact in pairs]))


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


def adjacent_cosines(
    order_M: Ids, vectors_ND: Vectors, sample: int = 1 << 20, seed: int = 0
) -> NDArray[np.float32]:
    """Cosine of each document of an order and the next, float32 (M - 1,), or of a sample of them."""
    places = np.arange(max(len(order_M) - 1, 0))
    if len(places) > sample:
        places = np.sort(np.random.default_rng(seed).choice(places, sample, replace=False))
    cosines = [np.empty(0, np.float32)]
    for start in range(0, len(places), FLOAT32_ROWS):
        block = places[start : start + FLOAT32_ROWS]
        here_BD, next_BD = (vectors_ND[order_M[place]].astype(np.float32) for place in (block, block + 1))
        cosines.append((here_BD * next_BD).sum(1))
    return np.concatenate(cosines)


def instance_cosines(stages: Mapping[str, Artifact], method: str, seed: int) -> dict[str, float | None]:
    """`shared_instance_cosine` of a corpus in its order, `method`, and in random order; None for NaN."""
    vectors_ND: NDArray[np.float16] = np.load(stages["embeddings"].path("embeddings.npy"), mmap_mode="r")
    left_out = np.load(stages["duplicates"].path("ids.npy"))
    instances, offsets = open_instances(stages["instances"]), open_tokens(stages["tokens"]).offsets
    shuffled = random_order(len(vectors_ND), seed, left_out)
    cosines = {
        "random": shared_instance_cosine(cut_instances(offsets, shuffled, instances.length + 1), vectors_ND),
        method: shared_instance_cosine(instances.pieces, vectors_ND),
    }
    return {order: None if math.isnan(cosine) else cosine for order, cosine in cosines.items()}


def shared_instance_cosine(pieces: Pieces, vectors_ND: Vectors) -> float:
    """Mean cosine between documents that share an instance.

    For each instance with m ≥ 2 documents, the mean over its pairs of distinct documents; then the mean over
    those instances (NaN when there are none). Documents count equally, however many of their tokens the
    instance holds. With unit vectors v the sum over ordered pairs is |Σv|² − Σ|v|².
    """
    sizes_I = np.diff(pieces.starts_I)
    total, count = 0.0, 0
    for first in range(0, len(pieces), INSTANCES_AT_ONCE):
        last = min(first + INSTANCES_AT_ONCE, len(pieces))
        begin, end = pieces.starts_I[first], pieces.starts_I[last]
        vectors_PD = vectors_ND[pieces.documents_P[begin:end]].astype(np.float32)
        groups = pieces.starts_I[first:last] - begin
        sums_ID = np.add.reduceat(vectors_PD, groups)
        squares_I = np.add.reduceat(np.square(vectors_PD).sum(1), groups)
        sizes = sizes_I[first:last]
        shared = sizes >= 2
        pairs = (np.square(sums_ID).sum(1) - squares_I)[shared] / (sizes * (sizes - 1))[shared]
        total += float(pairs.sum(dtype=np.float64))
        count += len(pairs)
    return total / count if count else float("nan")
