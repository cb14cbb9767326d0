"""Instances as a data set for other trainers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loriini.data.batches.joined import InstanceSource, weighted_sources


@dataclass(frozen=True)
class InstanceDataset:
    """A map-style data set of instances, for `transformers.Trainer` or a `torch` DataLoader.

    Item i holds `input_ids` (L,) and `shift_labels` (L,), the next token of each, both int64; with
    `labelled`, for designs that route by label, also `routing_labels` (); with `document_mask` also
    `position_ids` (L,), which start again at each document. `length` truncates the instances.

    Where workers are spawned, each maps the corpus's files itself; nothing is copied.

    Raises ValueError for a `length` above that of the instances, and for sources joined with weights: a data
    set holds each instance once.
    """

    source: InstanceSource
    length: int | None = None
    labelled: bool = False
    document_mask: bool = False

    def __post_init__(self) -> None:
        if self.length is not None and not 1 <= self.length <= self.source.length:
            raise ValueError(f"length is {self.length}; give 1 to {self.source.length}, or none")
        if weighted_sources(self.source):
            raise ValueError("a data set holds each instance once; join its sources without weights")

    @property
    def label_names(self) -> list[str]:
        """For `TrainingArguments(label_names=…)`: Trainer keeps these fields, and reports `eval_loss`."""
        return ["shift_labels", *(["routing_labels"] if self.labelled else [])]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> dict[str, NDArray[np.int64]]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{index} of {len(self)} instances")
        ids = np.array([index % len(self)])
        length = self.source.length if self.length is None else self.length
        tokens_L = self.source.read(ids)[0, : length + 1]
        item = {"input_ids": tokens_L[:-1], "shift_labels": tokens_L[1:]}
        if self.labelled:
            item["routing_labels"] = self.source.labels(ids)[0]
        if self.document_mask:
            item["position_ids"] = self.source.positions(ids)[0, :length]
        return item
