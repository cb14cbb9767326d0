"""Prepared corpora are read as one where they fit each other."""

from pathlib import Path

import pytest

from loriini.batches.joined import JoinedInstances
from loriini.errors import InputError
from loriini.train.corpora import read_corpora
from runs import prepared


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums").folder


def test_corpora_are_read_as_one(corpus: Path, tmp_path: Path) -> None:
    one, two = prepared(corpus), prepared(tmp_path / "other", str(corpus / "tokenizer"))
    joined = read_corpora([one.folder, two.folder])
    assert len(joined.instances) == len(one.instances) + len(two.instances)
    assert joined.vocab_size == one.instances.vocab_size
    assert joined.digest != read_corpora([one.folder]).digest


def test_corpora_of_different_tokenizers_or_lengths_are_refused(corpus: Path, tmp_path: Path) -> None:
    tokenizer = prepared(tmp_path / "tokenizer", "bpe:290").folder
    length = prepared(tmp_path / "length", str(corpus / "tokenizer"), length=32).folder
    with pytest.raises(InputError, match="made with different tokenizers; prepare them with the same"):
        read_corpora([corpus, tokenizer])
    with pytest.raises(InputError, match=r"different lengths \(.*sums: 64, .*length: 32\)"):
        read_corpora([corpus, length])
    with pytest.raises(InputError, match="no finished corpus here"):
        read_corpora([tmp_path])


def test_corpora_are_mixed_by_their_weights(corpus: Path, tmp_path: Path) -> None:
    paths = [corpus, prepared(tmp_path / "other", str(corpus / "tokenizer")).folder]
    mixed = read_corpora(paths, (2.0, 1.0)).instances
    assert isinstance(mixed, JoinedInstances)
    assert mixed.weights == (2.0, 1.0)
    with pytest.raises(InputError, match="corpus_weights: 1 weights for 2 sources; give each one"):
        read_corpora(paths, (1.0,))
    with pytest.raises(InputError, match="corpus_weights: there is one corpus"):
        read_corpora(paths[:1], (2.0,))
