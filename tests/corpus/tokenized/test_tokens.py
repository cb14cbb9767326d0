import os
from pathlib import Path

import numpy as np
import pytest

from loriini.corpus.text.documents import write_documents
from loriini.corpus.text.stored import stored_documents
from loriini.corpus.tokenized.tokenizer import open_tokenizer, write_tokenizer
from loriini.corpus.tokenized.tokens import open_tokens, write_tokens
from loriini.jobs.artifact import Artifact
from loriini.sources.document import Document

TEXTS = ["Hello world  x", "  lead", "a\n\n  b\tc", "naïve 😀 <|endoftext|> x", " x", "don't, 12 345!"]


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Forty documents in several shards."""
    made = [Document(f"d{i}", TEXTS[i % 6] * (i + 1), "ab"[i % 2]) for i in range(40)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loriini.corpus.text.documents.SHARD_CHARACTERS", 1000)
        written = write_documents(tmp_path_factory.mktemp("texts") / "documents", lambda _: made, {})
    assert len(written.counts["shards"]) > 2
    return written


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, documents: Artifact) -> Artifact:
    return write_tokenizer(tmp_path_factory.mktemp("bpe") / "tokenizer", "bpe:300", documents)


def test_tokens_round_trip(tmp_path: Path, documents: Artifact, tokenizer: Artifact) -> None:
    written = write_tokens(tmp_path / "tokens", documents, tokenizer)
    assert written.counts["documents"] == written.counts["documents_in"] == 40
    tokens = open_tokens(written)
    fast = open_tokenizer(tokenizer)
    stored = list(stored_documents(documents))
    assert len(tokens) == len(stored)
    assert tokens.tokens.dtype == np.uint16
    for i, document in enumerate(stored):
        ids = tokens.document(i)
        assert ids[-1] == tokens.eos_token_id == fast.eos_token_id
        # A text that spells the EOS token must not end its document early.
        assert np.count_nonzero(ids == tokens.eos_token_id) == 1
        assert fast.decode(ids[:-1]) == document.text
        assert tokens.domain_names[tokens.domains[i]] == document.domain
        assert tokens.bytes[i] == len(document.text.encode())


def test_batches_do_not_change_the_bytes(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr("loriini.corpus.tokenized.tokens.BATCH_CHARACTERS", 100)
    small = write_tokens(tmp_path / "small", documents, tokenizer)
    monkeypatch.setattr("loriini.corpus.tokenized.tokens.BATCH_CHARACTERS", 1_000)
    large = write_tokens(tmp_path / "large", documents, tokenizer)
    assert small.files == large.files
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
