"""The arrays that stages pass on: their types, and their files in the folders of the stages."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
"""Numbers of documents among the stored ones."""
Hashes = NDArray[np.uint64]
Neighbors = NDArray[np.integer]
"""Ids (N, K), the most similar first; -1 for none."""
Vectors = NDArray[np.floating]
"""Unit vectors (N, D)."""

VECTORS = "embeddings.npy"
NEIGHBORS, SIMILARITIES = "neighbors.npy", "similarities.npy"
IDS = "ids.npy"
"""In `duplicates` and in `heldout`: the documents that the order leaves out."""
ORDER = "order.npy"
