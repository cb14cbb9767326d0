"""What tests of the corpus share: a small `lsa`, and a corpus made once."""

from collections.abc import Iterator

import pytest

from data.prepare import topics
from loriini.data.prepare.corpus import Corpus
from loriini.data.prepare.similarity import lsa


@pytest.fixture(autouse=True, scope="module")
def small_lsa() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lsa, "FEATURES", 1 << 10)
        patch.setattr(lsa, "MOST_DIMENSIONS", 32)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The documents of `topics` as a corpus; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lsa, "FEATURES", 1 << 10)
        patch.setattr(lsa, "MOST_DIMENSIONS", 32)
        return topics.make(tmp_path_factory.mktemp("corpora") / "topics")
