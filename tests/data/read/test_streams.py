import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loriini.common.errors import InputError
from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.read import read, streams
from loriini.data.read.inputs import identity_of, input_files
from loriini.data.read.records import ReadOptions
from loriini.data.read.streams import DocumentStream, file_streams
from runs import interrupt

STOP, SKIP = ReadOptions(), ReadOptions(on_error="skip")


def open_streams(inputs: Sequence[str], reading: ReadOptions) -> tuple[list[DocumentStream], dict[str, str]]:
    """The streams of inputs, and the digests of their files."""
    files = input_files(inputs)
    identity = identity_of(files)
    return list(file_streams(files, identity, reading)), identity


def stored(folder: Path, inputs: list[str], reading: ReadOptions = STOP) -> list[str]:
    opened, identity = open_streams(inputs, reading)
    built = write_documents(folder, opened, {"on_error": reading.on_error}, identity)
    return [document.text for document in stored_documents(built)]


def read_then_interrupted(folder: Path, inputs: list[str], reading: ReadOptions) -> None:
    """Read the inputs, and stop where the documents are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loriini.data.prepare.text.documents._compare", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stored(folder, inputs, reading)


def finished_reads(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob(".*.parts/read-*/result.json")}


def dropped_places(folder: Path) -> list[tuple[str, str]]:
    dropped = map(json.loads, (folder / "dropped.jsonl").read_text().splitlines())
    return [(line["where"], line["reason"]) for line in dropped]


def lines(path: Path, *texts: str) -> str:
    path.write_text("".join(json.dumps({"id": text, "text": text}) + "\n" for text in texts))
    return str(path)


@pytest.mark.parametrize(("task_bytes", "tasks"), [(58, 2), (40, 4), (1 << 26, 1)])
def test_documents_are_in_the_order_of_the_inputs(
    task_bytes: int, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TASK_BYTES", task_bytes)
    inputs = [lines(tmp_path / f"{name}.jsonl", name, f"{name} too") for name in "ba"]
    assert len(open_streams(inputs, STOP)[0]) == tasks
    assert stored(tmp_path / "out", inputs) == ["b", "b too", "a", "a too"]


TEXTS = [
    *(f"{word} {i}" for i, word in enumerate(["lory", "na\u00efve", "\U0001f600"] * 9)),
    *(None, "\xff", "lory 0", "long" * 100, "last"),
]


def json_lines(path: Path, end: str = "\n") -> str:
    """Lines with flaws in lines 28 (null) and 29 (no object), a repeated text and a CR."""
    records = [json.dumps({"text": text}) for text in TEXTS]
    records[28], records[31] = "{", records[31] + "\r"
    path.write_text("\n".join(records) + end)
    return str(path)


@pytest.mark.parametrize(("task_bytes", "end"), [(100, ""), (500, "\n\n")])
def test_the_parts_of_json_lines_give_the_texts_of_one_task(
    task_bytes: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated texts and dropped lines; records are counted from their part's start."""
    monkeypatch.setattr("loriini.data.prepare.text.documents.SHARD_CHARACTERS", 50)
    path = json_lines(tmp_path / "large.jsonl", end)
    inputs = [lines(tmp_path / "small.jsonl", "small"), path]
    built = stored(tmp_path / "whole", inputs, SKIP)
    monkeypatch.setattr(streams, "TASK_BYTES", task_bytes)
    assert len(open_streams(inputs, SKIP)[0]) == -(-os.path.getsize(path) // task_bytes)
    assert stored(tmp_path / "parts", inputs, SKIP) == built
    place, reason = dropped_places(tmp_path / "parts")[0]
    start, number = map(int, place.removeprefix(f"{path}@").split(":"))
    assert (start % task_bytes, reason) == (0, "no text")
    assert Path(path).read_bytes()[start - 1 :].split(b"\n")[number] == b'{"text": null}'
    with pytest.raises(InputError, match=rf"large\.jsonl@{start}:{number}: no text"):
        stored(tmp_path / "stop", inputs, STOP)


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.txt", "a.csv", "a.arrow", "a.parquet.gz"])
def test_other_files_are_read_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TASK_BYTES", 10)
    (tmp_path / name).write_text("text\n" * 20)
    assert len(open_streams([str(tmp_path / name)], STOP)[0]) == 1


def test_files_read_before_a_bad_record_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TASK_BYTES", 25)
    inputs = [lines(tmp_path / f"{name}.jsonl", name) for name in "abc"]
    (tmp_path / "c.jsonl").write_text("{\n")
    with pytest.raises(InputError, match=r"c\.jsonl:1"):
        stored(tmp_path / "out", inputs)
    before = finished_reads(tmp_path)
    assert len(before) == 2
    lines(tmp_path / "c.jsonl", "c")
    read_then_interrupted(tmp_path / "out", inputs, STOP)
    assert before.items() < finished_reads(tmp_path).items()
    assert stored(tmp_path / "out", inputs) == ["a", "b", "c"]
    assert not list(tmp_path.glob(".*.parts"))


def test_an_empty_file_is_dropped(tmp_path: Path) -> None:
    inputs = [lines(tmp_path / "a.jsonl", "a"), lines(tmp_path / "b.jsonl")]
    assert stored(tmp_path / "out", inputs) == ["a"]
    dropped = json.loads((tmp_path / "out" / "dropped.jsonl").read_text())
    assert (dropped["where"], dropped["reason"]) == (inputs[1], "empty file")


def fail(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reading end with an OSError after the first record of every file."""
    records = read._records

    def first(*arguments: Any) -> Iterator[Any]:
        yield next(iter(records(*arguments)))
        raise OSError(number, "it fails")

    monkeypatch.setattr(read, "_records", first)


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("task_bytes", [20, 1 << 20])
def test_a_machine_that_fails_ends_the_reading_and_loses_nothing(
    number: int, task_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be opened is a flaw, unless other tasks have read parts of it."""
    path = lines(tmp_path / "a.jsonl", "a", "b", "c")
    monkeypatch.setattr(streams, "TASK_BYTES", task_bytes)
    with monkeypatch.context() as patch:
        fail(number, patch)
        if number == errno.EACCES and task_bytes > 20:
            assert stored(tmp_path / "skip", [path], SKIP) == ["a"]
        else:
            with pytest.raises(InputError, match=r"a\.jsonl: .*it fails; check disk and memory, and rerun"):
                stored(tmp_path / "out", [path], SKIP)
    assert stored(tmp_path / "out", [path], SKIP) == ["a", "b", "c"]


@pytest.mark.parametrize("reading", [STOP, SKIP], ids=["stop", "skip"])
def test_documents_of_a_flaw_that_vanished_are_compared_again(
    reading: ReadOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of what to keep was made without them, by a command that was killed after it."""
    path = lines(tmp_path / "a.jsonl", "a", "b", "c")
    with monkeypatch.context() as patch:
        fail(errno.EACCES, patch)
        patch.setattr("loriini.data.prepare.text.documents._rewrite", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path / "out", [path], SKIP)
    assert stored(tmp_path / "out", [path], reading) == (["a"] if reading is SKIP else ["a", "b", "c"])
