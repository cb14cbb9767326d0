"""Reading the `documents` artifact: all of it, some of it, or in the slices that tasks of later stages read.

Axes: N documents stored, S documents of a slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, compress, islice

import numpy as np
from numpy.typing import NDArray

from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.text.documents import DOCUMENTS, parse_line
from loriini.data.read.compressed import read_lines
from loriini.data.read.document import Document

SLICES, SLICE_CHARACTERS = 16, 1 << 22
"""At least SLICES slices, or one per SLICE_CHARACTERS if that is fewer, so that workers finish together."""


@dataclass(frozen=True)
class Slice:
    """Consecutive documents of one shard, by their places in it."""

    shard: int
    start: int
    stop: int
    first: int
    """The number of its first document among all documents."""

    def __len__(self) -> int:
        return self.stop - self.start

    def among(self, numbers_N: NDArray[np.int64]) -> NDArray[np.int64]:
        """The part of the sorted numbers of documents that is in the slice."""
        return numbers_N[slice(*np.searchsorted(numbers_N, (self.first, self.first + len(self))))]


def slices(stored: Artifact, most: int | None = None) -> list[Slice]:
    """All stored documents, in order, as slices of at most `most` documents; workers do not matter."""
    wanted = min(SLICES, -(-stored.counts["characters"] // SLICE_CHARACTERS))
    even = stored.counts["documents"] // max(1, wanted)
    step = max(1, min(even, most or even))
    return [
        Slice(whole.shard, start, min(start + step, whole.stop), whole.first + start)
        for whole in whole_shards(stored)
        for start in range(0, whole.stop, step)
    ]


def whole_shards(stored: Artifact) -> list[Slice]:
    """All stored documents, in order, one slice per shard."""
    sizes = stored.counts["shards"]
    ends = accumulate(sizes)
    return [Slice(i, 0, size, end - size) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]


def chosen_slices(stored: Artifact, chosen_N: NDArray[np.bool_]) -> list[tuple[Slice, NDArray[np.bool_]]]:
    """The shards that hold chosen documents, each with a mask (S,) of its chosen documents."""
    pairs = ((part, chosen_N[part.first : part.first + len(part)]) for part in whole_shards(stored))
    return [(part, chosen_S) for part, chosen_S in pairs if chosen_S.any()]


def slice_documents(
    stored: Artifact, part: Slice, chosen_S: NDArray[np.bool_] | None = None
) -> Iterator[Document]:
    """Stream a slice's documents in order, or only the chosen ones; the others are not parsed."""
    lines = islice(read_lines(stored.path(DOCUMENTS.format(part.shard))), part.start, part.stop)
    return map(parse_line, lines if chosen_S is None else compress(lines, chosen_S.tolist()))


def stored_documents(stored: Artifact) -> Iterator[Document]:
    """Stream the documents, in order."""
    for part in whole_shards(stored):
        yield from slice_documents(stored, part)


def chosen_documents(stored: Artifact, chosen_N: NDArray[np.bool_]) -> Iterator[Document]:
    """Stream the chosen documents, in order; the others are not parsed."""
    for part, chosen_S in chosen_slices(stored, chosen_N):
        yield from slice_documents(stored, part, chosen_S)
