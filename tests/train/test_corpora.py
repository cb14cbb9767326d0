"""Prepared corpora are read as one where they fit each other."""

from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.data.batches.joined import JoinedInstances
from loriini.train.corpora import read_corpora
from runs import prepared


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("corpora") / "sums").folder


def test_corpora_are_read_as_one_mixed_by_their_weights(corpus: Path) -> None:
    one, two = read_corpora([corpus]), read_corpora([corpus, corpus], (2.0, 1.0))
    assert isinstance(two.instances, JoinedInstances)
    assert two.instances.weights == (2.0, 1.0)
    assert len(two.instances) == 2 * len(one.instances)
    assert two.vocab_size == one.vocab_size
    assert two.digest != one.digest
    assert two.orders == ("random", "random")


def test_weights_must_fit_the_corpora(corpus: Path) -> None:
    with pytest.raises(InputError, match="corpus_weights: a single corpus has no weight"):
        read_corpora([corpus], (2.0,))
    with pytest.raises(InputError, match="corpus_weights: 2 corpora need as many, not 1"):
        read_corpora([corpus, corpus], (2.0,))
    with pytest.raises(InputError, match="make epochs of over 1e\\+15 instances; lower them"):
        read_corpora([corpus, corpus], (1.0, 1e15))


def test_corpora_of_different_tokenizers_or_lengths_are_refused(corpus: Path, tmp_path: Path) -> None:
    tokenizer = prepared(tmp_path / "tokenizer", "bpe:290").folder
    length = prepared(tmp_path / "length", str(corpus / "tokenizer"), length=32).folder
    with pytest.raises(InputError, match="made with different tokenizers; prepare them with the same"):
        read_corpora([corpus, tokenizer])
    with pytest.raises(InputError, match=r"different lengths \(.*sums: 64, .*length: 32\)"):
        read_corpora([corpus, length])
    with pytest.raises(InputError, match="no finished corpus here"):
        read_corpora([tmp_path])
