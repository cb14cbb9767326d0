import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loriini.data.jobs.artifact import Artifact
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.prepare.tokenized.tokenizer import read_tokenizer, write_tokenizer
from loriini.data.prepare.tokenized.tokens import open_tokens, write_tokens


def test_tokens_round_trip(tmp_path: Path, documents: Artifact, tokenizer: Artifact) -> None:
    written = write_tokens(tmp_path / "tokens", documents, tokenizer)
    assert written.counts["documents"] == written.counts["documents_in"] == 40
    tokens = open_tokens(written)
    fast = read_tokenizer(tokenizer.folder)
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
    monkeypatch.setattr("loriini.data.prepare.tokenized.tokens.BATCH_CHARACTERS", 100)
    small = write_tokens(tmp_path / "small", documents, tokenizer)
    monkeypatch.setattr("loriini.data.prepare.tokenized.tokens.BATCH_CHARACTERS", 1_000)
    large = write_tokens(tmp_path / "large", documents, tokenizer)
    assert small.files == large.files
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


@pytest.mark.parametrize("unk_token", ["<unk>", "<eos>"])
def test_unknown_tokens_of_text_are_counted(
    unk_token: str, tmp_path: Path, documents: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    """EOS, which ends a document, is none of them, even where it also stands for the unknown."""
    words = Tokenizer(models.WordLevel({"<eos>": 0, "<unk>": 1, "x": 2}, unk_token=unk_token))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = write_tokenizer(tmp_path / "tokenizer", str(tmp_path / "tokenizer.json"), None)
    written = write_tokens(tmp_path / "tokens", documents, tokenizer)
    tokens = [token for document in stored_documents(documents) for token in words.encode(document.text).ids]
    unknown = tokens.count(words.token_to_id(unk_token))
    assert written.counts["unknown"] == unknown > 0
    warning = f"warning: {unknown:,} of {len(tokens):,} tokens ("
    assert capsys.readouterr().err.count(warning) == 1
