"""Documents of text that is hard to tokenize, and a tokenizer that was trained on them."""

import pytest

from data.prepare.arrays import documents_stage
from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.tokenized.tokenizer import write_tokenizer
from loriini.data.read.document import Document

TEXTS = ["Hello world  x", "  lead", "a\n\n  b\tc", "naïve 😀 <|endoftext|> x", " x", "don't, 12 345!"]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Forty documents in several shards."""
    made = [Document(f"d{i}", TEXTS[i % 6] * (i + 1), "ab"[i % 2]) for i in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loriini.data.prepare.text.documents.SHARD_CHARACTERS", 1000)
        written = documents_stage(tmp_path_factory.mktemp("texts") / "documents", made)
    assert len(written.counts["shards"]) > 2
    return written


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, documents: Artifact) -> Artifact:
    return write_tokenizer(tmp_path_factory.mktemp("bpe") / "tokenizer", "bpe:300", documents)
