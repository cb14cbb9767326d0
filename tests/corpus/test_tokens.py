import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from loriini.corpus.documents import write_documents
from loriini.corpus.stored import stored_documents
from loriini.corpus.tokens import open_tokenizer, open_tokens, read_tokenizer, write_tokenizer, write_tokens
from loriini.errors import InputError
from loriini.jobs.artifact import Artifact
from loriini.jobs.processes import ProcessExecutor
from loriini.sources.document import Document

SHARED = Path(__file__).parents[3] / "shared" / "tokenizers"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="shared tokenizers are not on this machine")
TEXTS = ["Hello world  x", "  lead", "a\n\n  b\tc", "naïve 😀 <|endoftext|> x", " x", "don't, 12 345!"]


@pytest.fixture
def documents(tmp_path: Path) -> Artifact:
    made = [Document(f"d{i}", TEXTS[i % 6] * (i + 1), "ab"[i % 2]) for i in range(40)]
    return write_documents(tmp_path / "documents", lambda _: made, {})


@pytest.fixture
def in_shards(tmp_path: Path, documents: Artifact, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """The same documents in several shards, so that a worker each has something to do."""
    monkeypatch.setattr("loriini.corpus.documents.SHARD_CHARACTERS", 1000)
    made = write_documents(tmp_path / "in_shards", lambda _: list(stored_documents(documents)), {})
    assert len(made.counts["shards"]) > 2
    return made


@pytest.fixture
def tokenizer(tmp_path: Path, documents: Artifact) -> Artifact:
    return write_tokenizer(tmp_path / "tokenizer", "bpe:300", documents)


def test_trained_tokenizer_is_deterministic_and_loads(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact
) -> None:
    again = write_tokenizer(tmp_path / "again", "bpe:300", documents)
    assert again.files == tokenizer.files
    fast = AutoTokenizer.from_pretrained(tokenizer.folder)
    assert fast.eos_token == fast.bos_token == fast.pad_token == "<|endoftext|>"
    assert 257 < tokenizer.counts["vocab_size"] <= 300
    assert all(fast.decode(fast(text).input_ids) == text for text in TEXTS)


def test_tokens_round_trip(tmp_path: Path, documents: Artifact, tokenizer: Artifact) -> None:
    tokens = open_tokens(write_tokens(tmp_path / "tokens", documents, tokenizer))
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


def test_workers_do_not_change_the_bytes(
    tmp_path: Path, in_shards: Artifact, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr("loriini.corpus.tokens.BATCH_CHARACTERS", 100)
    one = write_tokens(tmp_path / "one", in_shards, tokenizer)
    monkeypatch.setattr("loriini.corpus.tokens.BATCH_CHARACTERS", 1_000)
    two = write_tokens(tmp_path / "two", in_shards, tokenizer, ProcessExecutor(2))
    assert one.files == two.files
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
    assert one.counts["documents"] == one.counts["documents_in"] == 40


def test_more_domains_than_an_index_holds(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loriini.corpus.tokens.MOST_DOMAINS", 1)
    with pytest.raises(InputError, match="2 domains, and there can be 1"):
        write_tokens(tmp_path / "tokens", documents, tokenizer)


def test_tokenizer_read_from_its_folder_or_file(
    tmp_path: Path, documents: Artifact, tokenizer: Artifact
) -> None:
    expected = open_tokenizer(tokenizer)(TEXTS).input_ids
    for i, path in enumerate((tokenizer.folder, tokenizer.path("tokenizer.json"))):
        copy = write_tokenizer(tmp_path / f"copy{i}", str(path), documents)
        assert open_tokenizer(copy)(TEXTS).input_ids == expected
        assert copy.counts == tokenizer.counts


@pytest.mark.parametrize(
    ("spec", "message"), [("bpe:12", "at least 257"), ("bpe:x", "at least 257"), ("absent", "no such")]
)
def test_wrong_spec(tmp_path: Path, documents: Artifact, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_tokenizer(tmp_path / "tokenizer", spec, documents)


def test_unreadable_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="not a readable tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "spm.model").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a readable tokenizer"):
        read_tokenizer(tmp_path / "spm.model")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        read_tokenizer(tmp_path / "folder")


def test_sentencepiece_extra_is_named_when_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ImportError

    # by its name the package may give the function of that name
    module = importlib.import_module("transformers.convert_slow_tokenizer")
    monkeypatch.setattr(module, "requires_backends", absent)
    (tmp_path / "spm.model").write_bytes(b"")
    with pytest.raises(InputError, match=r"pip install 'loriini\[sentencepiece\]'"):
        read_tokenizer(tmp_path / "spm.model")


def test_tokenizer_without_eos(tmp_path: Path, tokenizer: Artifact) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.path("tokenizer.json").read_text().replace("<|endoftext|>", "<other>"))
    with pytest.raises(InputError, match="no EOS token"):
        read_tokenizer(path)


def test_special_tokens_come_from_the_configuration_beside(tmp_path: Path, tokenizer: Artifact) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.path("tokenizer.json").read_text().replace("<|endoftext|>", "<stop>"))
    config = {
        "eos_token": {"content": "<stop>"},
        "bos_token": "<absent>",
        "tokenizer_class": "LlamaTokenizer",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    fast = read_tokenizer(tmp_path)
    assert (fast.eos_token, fast.bos_token) == ("<stop>", None)
    assert fast(TEXTS[0]).input_ids == open_tokenizer(tokenizer)(TEXTS[0]).input_ids


@needs_shared
def test_sentencepiece_gives_the_models_own_ids(tmp_path: Path, documents: Artifact) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    path = SHARED / "llama2_tokenizer.model"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    fast = open_tokenizer(write_tokenizer(tmp_path / "tokenizer", str(path), documents))
    assert fast(TEXTS, add_special_tokens=False).input_ids == model.encode(TEXTS)
    assert (fast.eos_token_id, fast.bos_token_id, len(fast)) == (2, 1, 32_000)
    assert fast.decode(model.encode("Hello world  x")) == "Hello world  x"


@needs_shared
def test_gpt2_folder(tmp_path: Path, documents: Artifact) -> None:
    fast = open_tokenizer(write_tokenizer(tmp_path / "tokenizer", str(SHARED), documents))
    assert fast("Hello world").input_ids == [15496, 995]
    assert fast.eos_token_id == 50256
