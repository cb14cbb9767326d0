"""Which held-out texts a corpus trains on, and which it only resembles or keeps out."""

from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from loriini.data.convert.corpus_import import import_corpus
from loriini.data.prepare import overlap
from loriini.data.prepare.overlap import trained_texts
from loriini.data.prepare.prepare import Corpus, prepare_documents
from loriini.data.prepare.settings import PrepareSettings
from loriini.data.read.document import Document

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Documents of few different sizes."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(list(LETTERS), 20 + i % 3)) + " é" for i in range(60)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Corpus:
    documents = [Document(f"d{i}", text, "letters") for i, text in enumerate(texts)]
    settings = PrepareSettings(tokenizer="bpe:300", length=32, order="random", heldout_share=0.2)
    folder = tmp_path_factory.mktemp("overlap") / "corpus"
    return prepare_documents(folder, lambda drop: documents, {"letters": "1"}, settings)


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_the_documents_of_instances_are_found(
    corpus: Corpus, texts: list[str], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "BLOCK", block)
    held_out = np.load(corpus.folder / "heldout" / "ids.npy").tolist()
    assert 0 < len(held_out) < len(texts)
    assert trained_texts(corpus, texts) == [i for i in range(len(texts)) if i not in held_out]


def test_other_texts_of_the_same_size_are_not(corpus: Corpus, texts: list[str]) -> None:
    trained = trained_texts(corpus, texts)[0]
    swapped = texts[trained][2:3] + texts[trained][1:2] + texts[trained][:1] + texts[trained][3:]
    assert sorted(swapped) == sorted(texts[trained])
    assert swapped != texts[trained]
    assert trained_texts(corpus, [swapped, "", texts[trained][:-2], texts[trained], texts[trained]]) == [3, 4]
    assert trained_texts(corpus, []) == []


def test_texts_that_a_tokenizer_normalizes_are_found_in_an_imported_corpus(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"<eos>": 0, "<unk>": 1, "one": 2, "two": 3, "three": 4}, "<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = Lowercase(), Whitespace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="<unk>")
    wrapped.save_pretrained(tmp_path / "tokenizer")
    texts = ["One two   THREE", "three  one", "two"]
    rows = [[*wrapped(text)["input_ids"], 0] for text in texts]
    pyarrow.parquet.write_table(pyarrow.table({"input_ids": rows}), tmp_path / "rows.parquet")
    corpus = import_corpus(
        tmp_path / "corpus", tmp_path / "rows.parquet", "hf", str(tmp_path / "tokenizer"), 3
    )
    assert trained_texts(corpus, [*texts, "two two"]) == [0, 1, 2]
