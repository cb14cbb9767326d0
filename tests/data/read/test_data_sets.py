"""Data sets of the Hub; a folder stands for one, and nothing is fetched."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loriini.common.errors import InputError
from loriini.data.read import (
    Dropped,
    Fields,
    InputFile,
    ReadOptions,
    input_files,
    input_identity,
    read_documents,
    read_file,
)
from loriini.data.read.document import Document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sets") / "parrots"
    path.mkdir()
    for split, shards in (("train", 3), ("test", 1)):
        for i in range(shards):
            rows = [{"text": f"{split} {i} {k}", "kind": "lory", "size": k} for k in range(2)]
            pq.write_table(pa.Table.from_pylist(rows), path / f"{split}-{i:05}-of-{shards:05}.parquet")
    return path


@pytest.fixture(autouse=True)
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub without a connection, but for the data set ORG/parrots at commit 1."""
    import datasets

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    load = datasets.load_dataset

    def local(name: str, config: str | None, *, revision: str, **options: Any) -> Any:
        assert (name, revision) == ("ORG/parrots", "1")
        return load(str(folder), config, **options)

    monkeypatch.setattr(datasets, "load_dataset", local)
    commit(monkeypatch, "1")


def commit(monkeypatch: pytest.MonkeyPatch, *shas: str) -> None:
    """Let the Hub answer with these commits, one after the other, the last again and again."""
    left = list(shas)

    def info(self: object, name: str) -> Any:
        if name == "nobody/nothing":
            raise ConnectionError("offline")
        return SimpleNamespace(sha=left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", info)


def shard_of(domain: str = "parrots") -> InputFile:
    return InputFile("hf:ORG/parrots", "parrots-0", domain, state={"revision": "1"}, shard=(0, 1))


def test_a_data_set_is_read_by_its_shards() -> None:
    found = input_files(["hf:ORG/parrots"])
    assert found == [replace(shard_of(), name=f"parrots-{i}", shard=(i, 3)) for i in range(3)]
    assert list(read_file(found[1], ReadOptions())) == [
        Document("parrots-1:1", "train 1 0", "parrots"),
        Document("parrots-1:2", "train 1 1", "parrots"),
    ]


def test_splits_and_fields_are_chosen_by_name() -> None:
    reading = ReadOptions(Fields(domain="kind", id="size"))
    assert list(read_documents(["birds=hf:ORG/parrots:default:test"], reading)) == [
        Document("0", "test 0 0", "lory"),
        Document("1", "test 0 1", "lory"),
    ]
    assert [d.domain for d in read_file(shard_of("birds"), ReadOptions())] == 6 * ["birds"]
    with pytest.raises(InputError, match=r"no text column \('body' is not among text, kind, size\)"):
        list(read_file(shard_of(), ReadOptions(Fields(text="body"))))


@pytest.mark.parametrize("name", ["ORG/parrots:absent", "nobody/nothing", "a/b:c:d:e"])
def test_a_data_set_that_cannot_be_opened_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^hf:{name}: "):
        input_files([f"hf:{name}"])


def test_identity_is_by_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Rows("one"))
    identities = []
    for sha in ("1234", "5678"):
        commit(monkeypatch, sha)
        identities.append(input_identity(["hf:ORG/NAME:train"])["hf:ORG/NAME:train"])
    assert identities[0] != identities[1]


class Rows:
    """A data set of two shards that fails, if it does, after its first row."""

    num_shards, column_names = 2, None

    def __init__(self, text: str, error: Exception | None = None) -> None:
        self.text, self.error = text, error

    def shard(self, num_shards: int, index: int) -> "Rows":
        return self

    def __iter__(self) -> Iterator[dict[str, str]]:
        yield {"text": self.text}
        if self.error:
            raise self.error


def test_every_shard_is_read_at_the_commit_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the data set has another one by then."""
    monkeypatch.setattr(
        "datasets.load_dataset", lambda name, *_, revision, **__: Rows(f"{name} at {revision}")
    )
    commit(monkeypatch, "1234", "5678")
    found = [document.text for document in read_documents(["hf:ORG/NAME"])]
    assert found == 2 * ["ORG/NAME at 1234"]


def test_a_data_set_that_fails_halfway_is_flawed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Rows("one", ConnectionError("gone")))
    with pytest.raises(InputError, match=r"shard 0\):2: unreadable data set \(gone\)"):
        list(read_file(shard_of(), ReadOptions()))
    dropped: list[Dropped] = []
    read = read_file(shard_of(), ReadOptions(on_error="skip", on_drop=dropped.append))
    assert [d.text for d in read] == ["one"]
    assert [(d.reason, d.detail) for d in dropped] == [("unreadable data set", "gone")]


def test_a_missing_package_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"needs datasets .*; run: pip install 'loriini\[inputs\]'"):
        input_files(["hf:ORG/parrots"])
