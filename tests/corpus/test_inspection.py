from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loriini.corpus.inspection import histogram, inspect_corpus, neighbor_examples, spread
from loriini.corpus.order import random_order
from loriini.corpus.prepare import Corpus, PrepareSettings, prepare_documents
from loriini.jobs.artifact import load_artifact
from loriini.sources.document import Document
from loriini.sources.dropped import Dropped, OnDrop

SETTINGS = PrepareSettings(tokenizer="bpe:300", length=63, neighbors=12)


def documents(drop: OnDrop) -> Iterator[Document]:
    """Two topics in turn, a copy, a near copy, and one that could not be read."""
    rng = np.random.default_rng(0)
    for i in range(60):
        words = [f"topic{i % 2}word{j}" for j in rng.integers(0, 30, 12)]
        yield Document(f"d{i}", " ".join(words), f"topic{i % 2}")
    yield Document("copy", " ".join(words), "topic1")
    yield Document("near", " ".join([*words, words[0]]), "topic1")
    drop(Dropped(None, None, "no text"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepare_documents(tmp_path_factory.mktemp("corpora") / "topics", documents, {}, SETTINGS)


def test_numbers_of_a_corpus(corpus: Corpus) -> None:
    found = inspect_corpus(corpus)
    dropped = {"no text": 1, "exact duplicate": 1, "near-duplicate": 1}
    assert found["documents"] == {"in": 61, "ordered": 60, "dropped": dropped}
    assert {name: domain["documents"] for name, domain in found["domains"].items()} == {
        "topic0": 30,
        "topic1": 31,
    }
    assert sum(domain["tokens"] for domain in found["domains"].values()) == found["tokens"]["in"]
    assert found["tokens_per_document"]["max"] == np.diff(corpus.tokens.offsets).max()
    assert found["neighbors"]["recall_at_10"] == 1
    assert found["shared_instance_cosine"]["similar"] > found["shared_instance_cosine"]["random"]
    order = np.load(load_artifact(corpus.folder / "order").path("order.npy"))
    vectors = np.load(load_artifact(corpus.folder / "embeddings").path("embeddings.npy")).astype(np.float32)
    adjacent = (vectors[order[:-1]] * vectors[order[1:]]).sum(1).mean()
    assert found["order"]["adjacent_cosine"] == pytest.approx(adjacent, abs=1e-6)
    shuffled = random_order(len(vectors), 0)
    assert adjacent > (vectors[shuffled[:-1]] * vectors[shuffled[1:]]).sum(1).mean()
    for name, drawn in found["histograms"].items():
        assert sum(drawn["counts"]) == {"tokens_per_document": 61, "nearest_cosine": 61}.get(name, 59)
        assert len(drawn["edges"]) == len(drawn["counts"]) + 1


def test_random_order_has_no_neighbors(tmp_path: Path) -> None:
    shuffled = prepare_documents(tmp_path / "random", documents, {}, replace(SETTINGS, order="random"))
    found = inspect_corpus(shuffled)
    assert found["neighbors"] is None
    assert found["order"]["adjacent_cosine"] is None
    assert list(found["histograms"]) == ["tokens_per_document"]
    assert neighbor_examples(shuffled) == []


def test_examples_are_documents_with_their_nearest(corpus: Corpus) -> None:
    first, second = neighbor_examples(corpus, shown=2, neighbors=3)
    for example in (first, second):
        assert example["text"].startswith(example["domain"])
        assert len(example["neighbors"]) == 3
        similarities = [near["similarity"] for near in example["neighbors"]]
        assert similarities == sorted(similarities, reverse=True)
        assert example["id"] not in [near["id"] for near in example["neighbors"]]


def test_spread_and_histogram() -> None:
    assert spread(range(1, 102)) == {"mean": 51, "p10": 11, "p50": 51, "p90": 91, "p99": 100, "max": 101}
    edges = np.array([0.0, 1, 2, 3, 4])
    assert histogram([1.5, 1.7, 2, 9], edges) == {"edges": [1, 2, 3, 4], "counts": [2, 1, 1]}
    assert histogram([], edges) == {"edges": [0], "counts": []}
