import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.prepare.arrays import documents_stage, stage_of
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.text import duplicates

TEXT = "the quick brown fox jumps over the lazy dog and runs through the forest to the far river bank"
NEIGHBORS = np.array([[1, 2, 3], [0, 2, 3], [0, 1, -1], [0, 1, 2]], np.int32)
SIMILARITIES = np.array([[0.99, 0.96, 0.5], [0.99, 0.9, 0.97], [0.96, 0.9, 0], [0.5, 0.97, 0.1]], np.float16)


def shingles_reference(text: str) -> frozenset[str]:
    """The naive twin: the runs of words themselves."""
    words = text.split()
    size = duplicates.SHINGLE
    return frozenset(" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1)))


texts = st.lists(st.sampled_from("abc"), max_size=12).map(" ".join)


@given(texts, texts)
def test_the_index_of_hashes_is_that_of_the_words(first: str, second: str) -> None:
    a, b = shingles_reference(first), shingles_reference(second)
    index = duplicates.jaccard_index(duplicates.shingles(first), duplicates.shingles(second))
    assert index == len(a & b) / len(a | b)


def test_letters_of_scripts_without_spaces_are_words() -> None:
    text = "".join(chr(0x4E00 + i) for i in range(60))
    changed = text[:30] + "好" + text[31:]
    index = duplicates.jaccard_index(duplicates.shingles(text), duplicates.shingles(changed))
    assert index == 51 / 61


@pytest.mark.parametrize("block", [1, 3, 100])
def test_candidates_are_similar_neighbors_once_each(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "ROWS_AT_ONCE", block)
    pairs = duplicates.candidates(SIMILARITIES, NEIGHBORS)
    assert pairs[["kept", "dropped"]].tolist() == [(0, 1), (0, 2), (1, 3)]
    assert pairs["cosine"].tolist() == SIMILARITIES[[0, 0, 1], [0, 1, 2]].tolist()
    assert len(duplicates.candidates(SIMILARITIES - np.float16(0.1), NEIGHBORS)) == 0


def test_a_similarity_of_exactly_the_least_is_enough() -> None:
    least, found = np.array([[duplicates.COSINE], [0]], np.float16), np.array([[1], [-1]], np.int32)
    assert len(duplicates.candidates(least, found)) == 1
    assert len(duplicates.candidates(np.nextafter(least, np.float16(0)), found)) == 0


def test_one_duplicate_a_document_and_only_if_the_words_agree() -> None:
    pairs = np.array([(0, 1, 1), (0, 2, 1), (1, 2, 1)], duplicates.PAIR)
    assert duplicates.near_duplicates(pairs, np.array([0.9, 0.5, 0.8])).tolist() == [0, 2]
    assert duplicates.near_duplicates(pairs, np.array([0.9, 0.9, 0.9])).tolist() == [0, 1]


def write(folder: Path, texts: list[str]) -> Artifact:
    documents = documents_stage(folder / "documents", texts)
    found = stage_of(folder / "neighbors", neighbors=NEIGHBORS, similarities=SIMILARITIES)
    return duplicates.write_duplicates(folder / "duplicates", documents, found)


def test_they_are_listed_with_the_reason(tmp_path: Path) -> None:
    other = "all of it in other words than those that came before it"
    written = write(tmp_path, [TEXT, TEXT + " again", other, TEXT + " and again"])
    assert written.counts == {"candidates": 3, "duplicates": 2}
    assert np.load(written.path("ids.npy")).tolist() == [1, 3]
    first, second = map(json.loads, written.path("duplicates.jsonl").read_text().splitlines())
    assert first == {
        "document": 1,
        "repeats": 0,
        "id": "d1",
        "repeats_id": "d0",
        "cosine": float(np.float16(0.99)),
        "jaccard": 15 / 16,
    }
    assert (second["id"], second["repeats_id"]) == ("d3", "d1")


def test_many_small_tasks_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [TEXT, TEXT + " again", "other words", TEXT + " and again"]
    few = write(tmp_path / "few", texts)
    monkeypatch.setattr(duplicates, "PAIRS_PER_TASK", 1)
    monkeypatch.setattr("loriini.data.prepare.text.stored.SLICE_CHARACTERS", 1)
    many = write(tmp_path / "many", texts)
    assert few.files == many.files
    assert few.counts["duplicates"] == 2
