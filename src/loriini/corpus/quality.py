"""How good neighbours and orders are: measured on finished arrays, nothing written.

Axes: N documents, K neighbours, D embedding width, M ordered documents, Q sampled documents.
"""

import faiss
import numpy as np
from numpy.typing import NDArray

from loriini.corpus.neighbors import Ids, Vectors

ROWS = 1 << 16
"""Vectors that are held as float32 at once."""


def recall(
    neighbors_NK: NDArray[np.integer], vectors_ND: Vectors, at: int = 10, sample: int = 1000, seed: int = 0
) -> float:
    """The share of the `at` truly nearest documents that are among a document's first `at` neighbours.

    Mean over `sample` documents drawn without replacement; the truth is exact search through all N. Fewer are
    asked for where there are fewer neighbours or documents; NaN where there are none.
    """
    count, columns = neighbors_NK.shape
    at = min(at, columns, count - 1)
    if at < 1:
        return float("nan")
    ids_Q = np.sort(np.random.default_rng(seed).choice(count, min(sample, count), replace=False))
    pairs = zip(neighbors_NK[ids_Q, :at], exact_neighbors(vectors_ND, ids_Q, at), strict=True)
    return float(np.mean([len(np.intersect1d(found, exact)) / at for found, exact in pairs]))


def exact_neighbors(vectors_ND: Vectors, ids_Q: Ids, k: int) -> Ids:
    """The `k` < N nearest of all documents to some of them, without themselves; int64 (Q, k)."""
    queries_QD = vectors_ND[ids_Q].astype(np.float32)
    best_QK = np.empty((len(ids_Q), 0), np.float32)
    ids_QK = np.empty((len(ids_Q), 0), np.int64)
    for start in range(0, len(vectors_ND), ROWS):
        rows_BD = vectors_ND[start : start + ROWS].astype(np.float32)
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
    """The cosine of each document of an order and the next, float32 (M - 1,), or of so many of them."""
    places = np.arange(max(len(order_M) - 1, 0))
    if len(places) > sample:
        places = np.sort(np.random.default_rng(seed).choice(places, sample, replace=False))
    cosines = [np.empty(0, np.float32)]
    for start in range(0, len(places), ROWS):
        block = places[start : start + ROWS]
        here_BD, next_BD = (vectors_ND[order_M[place]].astype(np.float32) for place in (block, block + 1))
        cosines.append((here_BD * next_BD).sum(1))
    return np.concatenate(cosines)
