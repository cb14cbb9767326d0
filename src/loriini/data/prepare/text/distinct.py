"""Detection of repeated texts and repeated ids, from hashes alone.

Texts are compared by 128 bits, so that a collision cannot lose one; ids by 64, where a collision only causes
an unnecessary rename.

Axis: D documents.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from loriini.data.prepare.arrays import Ids

TEXT_BYTES, ID_BYTES = 16, 8


def sha256(texts: Iterable[str], size: int) -> NDArray[np.bytes_]:
    """The first `size` bytes of each text's SHA-256, (D,)."""
    return np.array([hashlib.sha256(text.encode()).digest()[:size] for text in texts], f"S{size}")


def repetitions(hashes_D: NDArray[np.bytes_]) -> tuple[Ids, Ids]:
    """For each hash the index of its first occurrence, and its own 1-based occurrence, int64 (D,) each."""
    order = np.argsort(hashes_D, kind="stable")  # the first of equal hashes comes first
    ranked = hashes_D[order]
    starts = np.searchsorted(ranked, ranked)
    first, occurrence = np.empty_like(order), np.empty_like(order)
    first[order] = order[starts]
    occurrence[order] = np.arange(len(order)) - starts + 1
    return first, occurrence


def unique_id(own_id: str, occurrence: int, number: int, known: NDArray[np.bytes_]) -> str:
    """A unique id for the document whose `own_id` occurs for the `occurrence`-th time.

    The first keeps it, later ones get `own_id#occurrence`, followed by `@number` while another document has
    that id. `number` is the document's own; `known` are the sorted hashes of all stored ids as read.
    """
    if occurrence == 1:
        return own_id
    unique = f"{own_id}#{occurrence}"
    while _contains(known, sha256([unique], ID_BYTES)[0]):
        unique = f"{unique}@{number}"
    return unique


def _contains(ranked: NDArray[np.bytes_], value: np.bytes_) -> bool:
    place = np.searchsorted(ranked, value)
    return bool(place < len(ranked) and ranked[place] == value)
