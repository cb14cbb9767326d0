"""Detection of repeated texts and repeated ids, from hashes alone.

Texts are compared by 128 bits, so that a collision cannot lose one; ids by 64, where a collision only causes
an unnecessary rename.

Axes: D documents, W words of a hash.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from loriini.data.prepare.array_types import Hashes, Ids

TEXT_WORDS = 2
WORD_BYTES = 8


def text_hashes(texts: list[str]) -> Hashes:
    """128 bits of each text's SHA-256, uint64 (D, 2)."""
    return _hashes(texts, TEXT_WORDS)


def id_hashes(ids: list[str]) -> Hashes:
    """64 bits of each id's SHA-256, uint64 (D,)."""
    return _hashes(ids, 1)[:, 0]


def first_of_text(texts_D2: Hashes) -> Ids:
    """Index of the first document with the same text, int64 (D,)."""
    order = np.lexsort((texts_D2[:, 1], texts_D2[:, 0]))  # stable: the first of equal texts comes first
    starts, sizes = _runs(texts_D2[order])
    first = np.empty(len(order), np.int64)
    first[order] = np.repeat(order[starts], sizes)
    return first


def occurrences(ids_D: Hashes) -> NDArray[np.uint32]:
    """1-based occurrence of each id, uint32 (D,)."""
    order = np.argsort(ids_D, kind="stable")
    starts, sizes = _runs(ids_D[order, None])
    counted = np.empty(len(order), np.uint32)
    counted[order] = np.arange(len(order)) - np.repeat(starts, sizes) + 1
    return counted


def new_name(name: str, occurrence: int, number: int, known: Hashes) -> str:
    """A unique id for the document whose id `name` occurs for the `occurrence`-th time.

    The first keeps its id, later ones get `name#occurrence`, followed by `@number` while another document has
    that id.

    Args:
        name: the id as it was read.
        occurrence: 1-based.
        number: the document's own number.
        known: sorted hashes of all ids as they were read.
    """
    if occurrence == 1:
        return name
    name = f"{name}#{occurrence}"
    while _contains(known, id_hashes([name])[0]):
        name = f"{name}@{number}"
    return name


def _runs(sorted_DW: Hashes) -> tuple[Ids, Ids]:
    """Where each run of equal values begins, and its length."""
    differs_D = np.append(True, (sorted_DW[1:] != sorted_DW[:-1]).any(1))[: len(sorted_DW)]
    starts = np.flatnonzero(differs_D)
    return starts, np.diff(np.append(starts, len(sorted_DW)))


def _contains(sorted_values: Hashes, value: np.uint64) -> bool:
    place = np.searchsorted(sorted_values, value)
    return bool(place < len(sorted_values) and sorted_values[place] == value)


def _hashes(texts: list[str], words: int) -> Hashes:
    digests = (hashlib.sha256(text.encode()).digest()[: words * WORD_BYTES] for text in texts)
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, words)
