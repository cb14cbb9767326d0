"""Which held-out texts a corpus trains on, and which it only resembles or keeps out."""

import numpy as np
import pytest

from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.overlap import trained_texts
from loriini.data.prepare.prepare import prepare_documents
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


def test_the_documents_of_instances_are_found(corpus: Corpus, texts: list[str]) -> None:
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
