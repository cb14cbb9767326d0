import numpy as np
import pytest
from numpy.typing import NDArray

from data.prepare.arrays import unit_vectors
from loriini.data.prepare.similarity import quality
from loriini.data.prepare.tokenized.pieces import Pieces, cut_instances


def cosine_reference(pieces: Pieces, vectors: NDArray[np.float16]) -> float:
    """The naive twin: every pair of documents of every instance."""
    means = []
    for begin, end in zip(pieces.starts_I, pieces.starts_I[1:], strict=False):
        of_instance = vectors[pieces.documents_P[begin:end]].astype(np.float64)
        cosines = of_instance @ of_instance.T
        pairs = cosines[np.triu_indices(len(cosines), 1)]
        if len(pairs):
            means.append(pairs.mean())
    return float(np.mean(means))


class CountedRows:
    """Vectors that remember how many were read at once."""

    def __init__(self, vectors_ND: NDArray[np.float16]) -> None:
        self.vectors_ND, self.most = vectors_ND, 0

    def __getitem__(self, ids: NDArray[np.int64]) -> NDArray[np.float16]:
        self.most = max(self.most, len(ids))
        return self.vectors_ND[ids]


@pytest.mark.parametrize("rows", [1, 7, 1 << 16])
@pytest.mark.parametrize("instances", [5, 4096])
def test_shared_instance_cosine_equals_its_naive_twin(
    instances: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "INSTANCES_AT_ONCE", instances)
    rng = np.random.default_rng(0)
    vectors = unit_vectors(40)
    cut = cut_instances(np.cumsum([0, *rng.integers(1, 30, 40)]), rng.permutation(40), 20)
    pieces = cut.block(0, len(cut))
    at_once = quality.shared_instance_cosine(pieces, vectors)
    monkeypatch.setattr(quality, "FLOAT32_ROWS", rows)
    counted = CountedRows(vectors)
    assert quality.shared_instance_cosine(pieces, counted) == at_once
    assert quality.shared_instance_cosine(cut, counted) == at_once
    assert at_once == pytest.approx(cosine_reference(pieces, vectors), abs=1e-5)
    assert counted.most <= max(rows, np.diff(pieces.starts_I).max())


@pytest.mark.parametrize(("sample", "of_five"), [(4, 1), (15, 3), (60, 5)])
def test_many_instances_are_sampled_evenly(
    sample: int, of_five: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive twin: the same instances, one by one."""
    monkeypatch.setattr(quality, "INSTANCES_AT_ONCE", 5)
    monkeypatch.setattr(quality, "SAMPLED_INSTANCES", sample)
    vectors = unit_vectors(60)
    pieces = cut_instances(np.arange(0, 610, 10), np.random.default_rng(0).permutation(60), 21).block(0, 28)
    chosen = [pieces.block(i, i + 1) for i in range(28) if i % 5 < of_five]
    expected = np.mean([cosine_reference(instance, vectors) for instance in chosen])
    assert quality.shared_instance_cosine(pieces, vectors) == pytest.approx(expected, abs=1e-5)
