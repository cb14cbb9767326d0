"""The corpus that most runs are trained on."""

import pytest

from loriini.train.corpora import TrainingCorpus
from runs import tiny_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> TrainingCorpus:
    return tiny_corpus(tmp_path_factory.mktemp("tokenizer"))
