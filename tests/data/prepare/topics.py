"""Documents on four topics, and a corpus of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.prepare import prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.document import Document
from loriini.data.read.records import Dropped, OnDrop

SETTINGS = PrepareSettings(tokenizer="bpe:300", length=127, neighbors=8)
IDENTITY = {"topics": "1"}


def documents(drop: OnDrop = lambda dropped: None) -> Iterator[Document]:
    """Forty documents a topic, each with its own vocabulary; a copy, a near-duplicate, one unreadable."""
    rng = np.random.default_rng(0)
    for i in range(160):
        words = [f"topic{i % 4}word{j}" for j in rng.integers(0, 30, 12)]
        yield Document(f"d{i}", " ".join(words), f"topic{i % 4}")
        if i == 80:
            yield Document("copy", " ".join(words), f"topic{i % 4}")
            yield Document("near", " ".join([*words, words[0]]), f"topic{i % 4}")
    drop(Dropped(None, None, "no text"))


def make(out: Path, settings: PrepareSettings = SETTINGS) -> Corpus:
    return prepare_documents(out, documents, IDENTITY, settings)
