"""Which documents repeat an earlier text, and which ids an earlier id: decided from hashes alone.

Texts are told apart by 128 bits, so that none is lost to chance; ids by 64, where chance costs a new name.

Axes: D documents read, P pieces they are cut into, W words of a hash.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]

TEXT_WORDS = 2
WORD_BYTES = 8
BLOCK = 1 << 20
"""Values compared at once."""


def text_hashes(texts: list[str]) -> Hashes:
    """128 bits of each text's SHA-256, uint64 (D, 2)."""
    return _hashes(texts, TEXT_WORDS)


def id_hashes(ids: list[str]) -> Hashes:
    """64 bits of each id's SHA-256, uint64 (P,)."""
    return _hashes(ids, 1)[:, 0]


def first_of_text(texts_D2: Hashes) -> Ids:
    """For each document the first that has its text, itself if none has before; int64 (D,)."""
    order = np.lexsort((texts_D2[:, 1], texts_D2[:, 0]))  # stable: of equal texts the first comes first
    starts = _starts(texts_D2, order)
    first = np.empty(len(order), np.int64)
    first[order] = np.repeat(order[starts], np.diff(np.append(np.flatnonzero(starts), len(order))))
    return first


def number_of_id(ids_P: Hashes) -> NDArray[np.uint32]:
    """For each piece the how-manieth it is of its id, from 1; uint32 (P,)."""
    order = np.argsort(ids_P, kind="stable")
    starts = _starts(ids_P[:, None], order)
    sizes = np.diff(np.append(np.flatnonzero(starts), len(order)))
    numbers = np.empty(len(order), np.uint32)
    numbers[order] = np.arange(len(order)) - np.repeat(np.flatnonzero(starts), sizes) + 1
    return numbers


def new_name(name: str, number: int, place: int, known: Hashes) -> str:
    """The id of document `place`, which is the `number`-th called `name`.

    It is `name#number`; where a document is called that from the start, `name#number@place`. `known` are the
    hashes of all ids given, rising. No two documents get the same: names given are kept by their first.
    """
    if number == 1:
        return name
    name = f"{name}#{number}"
    while _among(id_hashes([name])[0], known):
        name = f"{name}@{place}"
    return name


def _starts(values_DW: Hashes, order: Ids) -> NDArray[np.bool_]:
    """Whether each value in the order differs from the one before it, (D,)."""
    starts = np.ones(len(order), bool)
    for begin in range(1, len(order), BLOCK):
        values = values_DW[order[begin - 1 : begin + BLOCK]]
        starts[begin : begin + BLOCK] = (values[1:] != values[:-1]).any(1)
    return starts


def _among(value: np.uint64, rising: Hashes) -> bool:
    place = np.searchsorted(rising, value)
    return bool(place < len(rising) and rising[place] == value)


def _hashes(texts: list[str], words: int) -> Hashes:
    digests = (hashlib.sha256(text.encode()).digest()[: words * WORD_BYTES] for text in texts)
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, words)
