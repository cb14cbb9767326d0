from pathlib import Path

import numpy as np
import pytest

from data.prepare.arrays import documents_stage
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.text import documents, stored
from loriini.data.prepare.text.stored import chosen_documents, slice_documents, slices
from loriini.data.read.document import Document

MADE = [Document(str(i), f"text {i} " * (i % 7 + 1), "ab"[i % 2]) for i in range(50)]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """Fifty documents in several shards."""
    monkeypatch.setattr(documents, "SHARD_CHARACTERS", 500)
    built = documents_stage(tmp_path / "documents", MADE)
    assert len(built.counts["shards"]) > 2
    return built


@pytest.mark.parametrize("characters", [1, 300, 1 << 22])
@pytest.mark.parametrize("most", [None, 1, 3, 1000])
def test_slices_are_all_documents_in_order(
    made: Artifact, characters: int, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "SLICE_CHARACTERS", characters)
    found = slices(made, most)
    assert all(0 < len(part) <= (most or len(MADE)) for part in found)
    assert [d for part in found for d in slice_documents(made, part)] == MADE


def test_little_text_is_a_slice_a_shard_and_more_is_many(
    made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [len(part) for part in slices(made)] == made.counts["shards"]
    monkeypatch.setattr(stored, "SLICE_CHARACTERS", 1)
    assert len(slices(made)) >= stored.SLICES


def test_chosen_documents(made: Artifact) -> None:
    chosen_N = np.random.default_rng(0).random(50) < 0.3
    chosen_N[:20] = False  # a shard without any
    assert list(chosen_documents(made, chosen_N)) == [
        d for d, taken in zip(MADE, chosen_N, strict=True) if taken
    ]
