"""Data sets by name, here by the path of a folder: nothing is fetched."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored import open_streams

from loriini.common.errors import InputError
from loriini.data.read import (
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
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def shard_of(folder: Path, domain: str = "parrots") -> InputFile:
    return InputFile(f"hf:{folder}", "parrots-0", domain, shard=(0, 1))


def test_a_data_set_is_read_by_its_shards(folder: Path) -> None:
    found = input_files([f"hf:{folder}"])
    assert found == [InputFile(f"hf:{folder}", f"parrots-{i}", "parrots", shard=(i, 3)) for i in range(3)]
    assert list(read_file(found[1], ReadOptions())) == [
        Document("parrots-1:1", "train 1 0", "parrots"),
        Document("parrots-1:2", "train 1 1", "parrots"),
    ]


def test_splits_and_fields_are_chosen_by_name(folder: Path) -> None:
    reading = ReadOptions(Fields(domain="kind", id="size"))
    assert list(read_documents([f"birds=hf:{folder}:default:test"], reading)) == [
        Document("0", "test 0 0", "lory"),
        Document("1", "test 0 1", "lory"),
    ]
    assert [d.domain for d in read_file(shard_of(folder, "birds"), ReadOptions())] == 6 * ["birds"]


def test_a_missing_text_column_is_refused_with_the_columns(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no text column \('body' is not among text, kind, size\)"):
        list(read_file(shard_of(folder), ReadOptions(Fields(text="body"))))


@pytest.mark.parametrize("name", ["{folder}:absent", "nobody/nothing"])
def test_a_data_set_that_cannot_be_opened_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^hf:.*: cannot be opened .*check its name, split and your access"):
        input_files([f"hf:{name.format(folder=folder)}"])


def test_a_name_of_too_many_parts_is_refused() -> None:
    with pytest.raises(InputError, match="hf:a/b:c:d:e: give hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT"):
        input_files(["hf:a/b:c:d:e"])


def test_identity_is_by_files_or_by_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(input_identity([f"hf:{folder}"])) == [str(path) for path in sorted(folder.iterdir())]
    commits = []
    for sha in ("1234", "5678"):
        info = type("Info", (), {"sha": sha})
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, info=info: info)
        commits.append(input_identity(["hf:ORG/NAME:train"])["hf:ORG/NAME:train"])
    assert commits[0] != commits[1]


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
    commits = iter(["1234", "5678"])
    info = type("Info", (), {"sha": property(lambda self: next(commits))})()
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name: info)
    found = [document.text for document in read_documents(["hf:ORG/NAME"])]
    assert found == 2 * ["ORG/NAME at 1234"]
    assert next(commits) == "5678"


def test_a_data_set_that_fails_halfway_is_flawed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Rows("one", ConnectionError("gone")))
    with pytest.raises(InputError, match=r"shard 0\):2: unreadable data set \(gone\)"):
        list(read_file(shard_of(folder), ReadOptions()))


def test_a_damaged_shard_is_refused_or_left_out(folder: Path, tmp_path: Path) -> None:
    content = (folder / "test-00000-of-00001.parquet").read_bytes()
    (tmp_path / "train.parquet").write_bytes(content[:4] + b"\xff" * 40 + content[44:])
    dropped = []
    read = read_file(shard_of(tmp_path), ReadOptions(on_error="skip", on_drop=dropped.append))
    assert list(read) == []
    assert [d.reason for d in dropped] == ["unreadable data set"]


@pytest.mark.parametrize("added", [False, True])
def test_a_saved_data_set_that_changes_while_it_is_read_is_refused(
    added: bool, folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "parrots"))
    [stream] = open_streams([f"hf:{copy}:test"], ReadOptions())[0]
    written = "new.parquet" if added else "test-00000-of-00001.parquet"
    pq.write_table(pa.table({"text": ["another"]}), copy / written)
    with pytest.raises(InputError, match="parrots:test: changed while it was read"):
        list(stream.read(lambda dropped: None))
    [stream] = open_streams([f"hf:{copy}:test"], ReadOptions())[0]
    assert list(stream.read(lambda dropped: None))
