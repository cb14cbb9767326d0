"""A corpus is verified file by file, and made again where it is damaged."""

import json
import shutil
from pathlib import Path

import pytest
import zstandard

from data.prepare import topics
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import load_artifact, write_manifest
from loriini.data.prepare.corpus import STAGES, Corpus, explained_damage, verify

NAMES = list(STAGES)
ORDERED = ["order", "instances"]
COMPARED = ["duplicates", "heldout", *ORDERED]
DEPENDENT = {
    "documents": NAMES[1:],
    "tokenizer": ["tokens", *ORDERED],
    "tokens": ORDERED,
    "embeddings": ["neighbors", *COMPARED],
    "neighbors": COMPARED,
    "duplicates": ["heldout", *ORDERED],
    "heldout": ORDERED,
    "order": ["instances"],
    "instances": [],
}
"""What is made of each stage, directly or not."""


@pytest.fixture(scope="module")
def copy(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that a test may change, if it restores it."""
    return Path(shutil.copytree(corpus.folder, tmp_path_factory.mktemp("copies") / "corpus"))


def test_every_file_of_every_stage_is_read(corpus: Corpus) -> None:
    assert list(corpus.manifest["stages"]) == sorted(NAMES)
    assert verify(corpus.folder) == sum(len(load_artifact(corpus.folder / name).files) for name in NAMES)


@pytest.mark.parametrize("stage", NAMES)
def test_one_changed_byte_is_reported(copy: Path, stage: str) -> None:
    artifact = load_artifact(copy / stage)
    path = max(map(artifact.path, artifact.files), key=lambda path: path.stat().st_size)
    whole = path.read_bytes()
    stale = ", ".join([stage, *DEPENDENT[stage]])
    for damaged in (bytes([whole[0] ^ 1]) + whole[1:], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{path.name} is not .*folders {stale} and make"):
            verify(copy)
    path.write_bytes(whole)
    assert verify(copy)


@pytest.mark.parametrize(
    ("error", "is_read_again"),
    [
        (ValueError("reason"), True),
        (FileNotFoundError("reason"), True),
        (zstandard.ZstdError("reason"), True),
        (PermissionError("no right"), False),
        (MemoryError(), False),
        (RuntimeError("std::bad_alloc"), False),
        (InputError("wrong"), False),
    ],
    ids=repr,
)
def test_files_are_read_again_only_after_an_error_of_damage(
    error: Exception, is_read_again: bool, copy: Path
) -> None:
    path = copy / "order" / "order.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:9])
    told = r"order\.npy is not what was written" if is_read_again else None
    with pytest.raises(InputError if is_read_again else type(error), match=told), explained_damage(copy):
        raise error
    path.write_bytes(whole)
    if is_read_again:
        with pytest.raises(type(error), match="reason"), explained_damage(copy):
            raise error


@pytest.mark.parametrize("stage", ["documents", "instances"])
def test_counts_that_were_changed_are_reported(copy: Path, stage: str) -> None:
    path = copy / stage / "manifest.json"
    whole = path.read_text()
    manifest = json.loads(whole)
    manifest["counts"]["documents"] -= 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=rf"{stage}/manifest.json: .*changed after it was written"):
        verify(copy)
    del manifest["manifest"]  # its own hash
    write_manifest(path, manifest)
    with pytest.raises(InputError, match=rf"{stage}: it is not the one that .*manifest.json records"):
        verify(copy)
    path.write_text(whole)


def test_an_absent_stage_is_reported_and_made_again(copy: Path) -> None:
    whole = {path: path.read_bytes() for path in (copy / "embeddings").iterdir()}
    shutil.rmtree(copy / "embeddings")
    with pytest.raises(InputError, match=r"/embeddings: is absent; the command that made the corpus makes"):
        verify(copy)
    topics.make(copy)
    assert {path: path.read_bytes() for path in (copy / "embeddings").iterdir()} == whole
    assert verify(copy)
