"""Sources of the instances in batches: a single one, or several joined."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loriini.common.errors import InputError


class InstanceSource(Protocol):
    """Instances by number, such as `loriini.data.prepare.tokenized.instances.Instances`."""

    def __len__(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens predicted in an instance: one fewer than it holds."""

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens of the given instances, int64 (B, length + 1)."""

    def positions(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """Each token's position in its piece of a document, int64 (B, length + 1); for document masking."""

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The labels of the given instances, int64 (B,), indices into `label_names`."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels. Used only by routing by label."""


@dataclass(frozen=True)
class JoinedInstances:
    """Several sources as one: the instances of `parts` in order, all of one length.

    `weights`, if given, say how often an epoch reads each source: 2 reads it twice, 0.5 reads a different
    half of it every epoch. After whole epochs, any two instances of a source have been read equally often, or
    one of them once more; within an epoch, all are shuffled.
    """

    parts: tuple[InstanceSource, ...]
    weights: tuple[float, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def length(self) -> int:
        return self.parts[0].length

    def read(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._gather(ids_B, lambda part, ids: part.read(ids), self.length + 1)

    def positions(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._gather(ids_B, lambda part, ids: part.positions(ids), self.length + 1)

    def labels(self, ids_B: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._gather(ids_B, lambda part, ids: part.labels(ids))

    @property
    def label_names(self) -> tuple[str, ...]:
        """The sources' label names; InputError when they differ."""
        names = list(dict.fromkeys(part.label_names for part in self.parts))
        if len(names) > 1:
            listed = "; ".join(", ".join(names_of_part) for names_of_part in names)
            raise InputError(
                f"routing by label needs corpora of the same domains, not {listed}; prepare them as one"
            )
        return names[0]

    def _gather(
        self,
        ids_B: NDArray[np.int64],
        read: Callable[[InstanceSource, NDArray[np.int64]], NDArray[np.int64]],
        *shape: int,
    ) -> NDArray[np.int64]:
        """What `read` returns for the instances, from each one's own source: int64 (B, *shape)."""
        starts = np.cumsum([0, *map(len, self.parts)])
        owners_B = np.searchsorted(starts, ids_B, side="right") - 1
        gathered = np.empty((len(ids_B), *shape), dtype=np.int64)
        for i in np.unique(owners_B):
            here_B = owners_B == i
            gathered[here_B] = read(self.parts[i], ids_B[here_B] - starts[i])
        return gathered


def weighted_sources(source: InstanceSource) -> JoinedInstances | None:
    """`source` if it joins sources with weights; else None, and its epochs read each instance once."""
    return source if isinstance(source, JoinedInstances) and source.weights else None
