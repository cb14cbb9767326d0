"""A corpus is verified file by file, and made again where it is damaged."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loriini.corpus.prepare import Corpus, PrepareSettings, prepare_documents
from loriini.corpus.verify import STAGES, verify
from loriini.errors import InputError
from loriini.jobs.artifact import load_artifact
from loriini.sources.document import Document
from loriini.sources.dropped import OnDrop


def documents(drop: OnDrop) -> Iterator[Document]:
    for i in range(30):
        yield Document(str(i), f"a bird {i} of {i % 4} kinds " * (3 + i % 5), "birds")


def make(out: Path, neighbors: int = 4) -> Corpus:
    settings = PrepareSettings(tokenizer="bpe:300", length=15, neighbors=neighbors)
    return prepare_documents(out, documents, {"birds": "1"}, settings)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return make(tmp_path / "corpus").folder


def test_every_file_of_every_stage_is_read(corpus: Path) -> None:
    assert set(STAGES) == set(make(corpus).manifest["stages"])
    assert verify(corpus) == sum(len(load_artifact(corpus / stage).files) for stage in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_one_changed_byte_is_told_and_mended(corpus: Path, stage: str) -> None:
    artifact = load_artifact(corpus / stage)
    path = max(map(artifact.path, artifact.files), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    later = STAGES[STAGES.index(stage) :]
    with pytest.raises(InputError, match=f"{path.name} is not .*folders {', '.join(later)} and make"):
        verify(corpus)
    for name in later:
        shutil.rmtree(corpus / name)
    make(corpus)
    assert verify(corpus)
    assert path.read_bytes() == whole


def test_an_absent_file_is_told(corpus: Path) -> None:
    (corpus / "order" / "order.npy").unlink()
    with pytest.raises(InputError, match=r"order\.npy is not what was written"):
        verify(corpus)


def test_a_stage_of_another_corpus_is_told(corpus: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", neighbors=3)
    shutil.rmtree(corpus / "neighbors")
    with pytest.raises(InputError, match="duplicates: it was not made of the neighbors that are here"):
        verify(corpus)
    shutil.copytree(tmp_path / "other" / "neighbors", corpus / "neighbors")
    with pytest.raises(InputError, match="duplicates: it was not made of the neighbors that are here"):
        verify(corpus)
