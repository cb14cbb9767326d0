import json
import shutil
from pathlib import Path

import numpy as np

from loriini.data.jobs.artifact import write_manifest
from loriini.data.prepare.corpus import Corpus, open_corpus
from loriini.data.prepare.inspection import inspect_corpus, neighbor_examples, summary_statistics


def test_numbers_of_a_corpus(corpus: Corpus) -> None:
    found = inspect_corpus(corpus)
    dropped = {"no text": 1, "exact duplicate": 1, "near-duplicate": 1}
    assert found["documents"] == {"in": 161, "ordered": 160, "held_out": 0, "dropped": dropped}
    sizes = {name: domain["documents"] for name, domain in found["domains"].items()}
    assert sizes == {"topic0": 41, "topic1": 40, "topic2": 40, "topic3": 40}
    assert sum(domain["tokens"] for domain in found["domains"].values()) == found["tokens"]["in"]
    assert found["tokens_per_document"]["max"] == np.diff(corpus.tokens.offsets).max()
    assert found["shared_instance_cosine"]["similar"] > found["shared_instance_cosine"]["random"]
    drawn = found["histograms"]["tokens_per_document"]
    assert sum(drawn["counts"]) == 161
    assert len(drawn["edges"]) == len(drawn["counts"]) + 1


def test_a_corpus_without_neighbors(corpus: Corpus, tmp_path: Path) -> None:
    """As one that was imported."""
    out = Path(shutil.copytree(corpus.folder, tmp_path / "corpus"))
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["manifest"]
    for name in ("embeddings", "neighbors", "duplicates"):
        shutil.rmtree(out / name)
        del manifest["stages"][name]
    write_manifest(out / "manifest.json", {**manifest, "shared_instance_cosine": {}})
    found = inspect_corpus(open_corpus(out))
    assert found["neighbors"] is None
    assert neighbor_examples(open_corpus(out)) == []


def test_examples_are_documents_with_their_nearest(corpus: Corpus) -> None:
    first, second = neighbor_examples(corpus, shown=2, neighbors=3)
    for example in (first, second):
        assert example["text"].startswith(example["domain"])
        assert len(example["neighbors"]) == 3
        similarities = [near["similarity"] for near in example["neighbors"]]
        assert similarities == sorted(similarities, reverse=True)
        assert example["id"] not in [near["id"] for near in example["neighbors"]]


def test_summary_statistics() -> None:
    found = summary_statistics(range(1, 102))
    assert found == {"mean": 51, "p10": 11, "p50": 51, "p90": 91, "p99": 100, "max": 101}
