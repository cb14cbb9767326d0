"""Instances as a data set, with what would have no effect refused."""

import pytest

from loriini.batches.dataset import InstanceDataset
from loriini.batches.joined import JoinedInstances
from runs import Pattern


def test_instances_are_truncated_to_a_length_that_they_have() -> None:
    source = Pattern()
    assert len(InstanceDataset(source, length=1)[0]["input_ids"]) == 1
    assert len(InstanceDataset(source, length=source.length)[0]["shift_labels"]) == source.length
    for length in (0, -1, source.length + 1):
        with pytest.raises(ValueError, match=f"length is {length}; the instances have {source.length} tok"):
            InstanceDataset(source, length=length)


def test_weights_of_joined_sources_are_refused() -> None:
    assert len(InstanceDataset(JoinedInstances((Pattern(), Pattern())))) == 2 * len(Pattern())
    with pytest.raises(ValueError, match="join its sources without weights"):
        InstanceDataset(JoinedInstances((Pattern(), Pattern()), (2.0, 1.0)))
