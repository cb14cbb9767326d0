"""Instances as a data set, with what would have no effect refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from loriini.data.batches.dataset import InstanceDataset
from loriini.data.batches.joined import JoinedInstances
from runs import Pattern, prepared


def test_instances_are_truncated_to_a_length_that_they_have() -> None:
    source = Pattern()
    assert len(InstanceDataset(source, length=1)[0]["input_ids"]) == 1
    assert len(InstanceDataset(source, length=source.length)[0]["shift_labels"]) == source.length
    for length in (0, -1, source.length + 1):
        with pytest.raises(ValueError, match=f"length is {length}; give 1 to {source.length}, or none"):
            InstanceDataset(source, length=length)


def test_an_index_counts_from_either_end() -> None:
    data = InstanceDataset(Pattern())
    assert data[-1]["input_ids"].tolist() == data[len(data) - 1]["input_ids"].tolist()
    for index in (len(data), -len(data) - 1):
        with pytest.raises(IndexError, match=f"{index} of {len(data)} instances"):
            data[index]


def test_weights_of_joined_sources_are_refused() -> None:
    assert len(InstanceDataset(JoinedInstances((Pattern(), Pattern())))) == 2 * len(Pattern())
    with pytest.raises(ValueError, match="join its sources without weights"):
        InstanceDataset(JoinedInstances((Pattern(), Pattern()), (2.0, 1.0)))


def test_spawned_workers_get_the_corpus_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corpora = [prepared(Path(name), length=16) for name in "ab"]
    joined = JoinedInstances(tuple(corpus.instances for corpus in corpora))
    for source in (corpora[0].instances, joined):
        dataset = InstanceDataset(source, length=9, labelled=True, document_mask=True)
        monkeypatch.chdir(tmp_path)
        pickled = pickle.dumps(dataset)
        assert len(pickled) < 2000 < source.read(np.arange(len(source))).nbytes
        monkeypatch.chdir("/")
        read = pickle.loads(pickled)
        assert len(read) == len(dataset)
        for i in range(len(dataset)):
            item, expected = read[i], dataset[i]
            assert item.keys() == expected.keys()
            assert all(np.array_equal(item[name], expected[name]) for name in expected)
