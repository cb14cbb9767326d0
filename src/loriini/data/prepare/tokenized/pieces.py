"""Documents in an order, cut into instances: the pieces of documents that instances hold.

Axes: N documents, M ordered documents, I instances, P pieces, L tokens of an instance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loriini.data.prepare.arrays import Ids


@dataclass(frozen=True)
class Pieces:
    """Which documents each instance holds, in reading order.

    Instance i holds the pieces starts_I[i] … starts_I[i+1]-1; piece p is `lengths_P[p]` tokens of document
    `documents_P[p]`. An instance holds at most one piece of a document.
    """

    starts_I: Ids
    """(I + 1,): where the pieces of each instance begin, and the end of the last."""
    documents_P: Ids
    lengths_P: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts_I) - 1

    def block(self, first: int, last: int) -> "Pieces":
        """The pieces of the instances `first` … `last` - 1, numbered from 0."""
        starts_I = self.starts_I[first : last + 1]
        here = slice(starts_I[0], starts_I[-1])
        return Pieces(starts_I - starts_I[0], self.documents_P[here], self.lengths_P[here])

    def positions(self, instance: int) -> NDArray[np.int64]:
        """Each token's position in its piece of an instance, int64 (L,)."""
        lengths = self.lengths_P[self.starts_I[instance] : self.starts_I[instance + 1]].astype(np.int64)
        return np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)


@dataclass(frozen=True)
class Cut:
    """Documents, concatenated and cut into instances of `size` tokens.

    It holds two numbers per document. There may be many more instances and pieces, so they are computed a
    block at a time.
    """

    order_M: Ids
    """Ids of documents, each at most once."""
    ends_M: Ids
    """Where each document ends, in tokens from the beginning of the first."""
    size: int

    def __len__(self) -> int:
        return int(self.ends_M[-1]) // self.size if len(self.ends_M) else 0

    def block(self, first: int, last: int) -> Pieces:
        """The pieces of the instances `first` … `last` - 1, numbered from 0."""
        bounds = np.arange(first, last + 1) * self.size
        begin, end = np.searchsorted(self.ends_M, bounds[[0, -1]])
        ends_M = self.ends_M[begin:end]
        cuts = np.union1d(bounds, ends_M)
        return Pieces(
            np.searchsorted(cuts, bounds),
            # "right": a document that ends where a piece starts is not the piece's
            self.order_M[begin + np.searchsorted(ends_M, cuts[:-1], side="right")],
            np.diff(cuts).astype(np.int32),
        )


def cut_instances(offsets: Ids, order_M: Ids, size: int) -> Cut:
    """Cut the documents with the ids `order_M`, each at most once, into instances of `size` tokens.

    `offsets` (N + 1,) are where each document begins, and the end of the last. Memory: at most 16 bytes per
    document, in addition to the arguments.
    """
    return Cut(order_M, np.cumsum(np.diff(offsets)[order_M]), size)


def majority_domains(pieces: Pieces, domains_N: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The domain of most of each instance's tokens, uint16 (I,); in a tie the lowest index."""
    domains_P = domains_N[pieces.documents_P].astype(np.int64)
    width = int(domains_P.max(initial=0)) + 1
    instances_P = np.repeat(np.arange(len(pieces)), np.diff(pieces.starts_I))
    pairs, pair_P = np.unique(instances_P * width + domains_P, return_inverse=True)
    tokens = np.bincount(pair_P, weights=pieces.lengths_P)
    instances, domains = np.divmod(pairs, width)
    best_first = np.lexsort((domains, -tokens, instances))
    first_of_each = np.unique(instances[best_first], return_index=True)[1]
    return domains[best_first[first_of_each]].astype(np.uint16)
