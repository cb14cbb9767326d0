import json
import os
from pathlib import Path

import pytest

from loriini.corpus.documents import write_documents
from loriini.corpus.stored import stored_documents
from loriini.errors import InputError
from loriini.sources import ReadOptions, streams
from loriini.sources.streams import open_streams

STOP, SKIP = ReadOptions(), ReadOptions(on_error="skip")


def lines(path: Path, *texts: str) -> str:
    path.write_text("".join(json.dumps({"id": text, "text": text}) + "\n" for text in texts))
    return str(path)


def stored(folder: Path, inputs: list[str], reading: ReadOptions = STOP) -> list[str]:
    opened, identity = open_streams(inputs, folder, reading)
    built = write_documents(folder, opened, {"on_error": reading.on_error}, identity)
    return [document.text for document in stored_documents(built)]


def finished_reads(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob(".*.parts/read-*/result.json")}


@pytest.mark.parametrize("task_bytes", [1, 1 << 26])
def test_documents_are_in_the_order_of_the_inputs(
    task_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TASK_BYTES", task_bytes)
    inputs = [lines(tmp_path / f"{name}.jsonl", name, f"{name} too") for name in "ba"]
    assert len(open_streams(inputs, tmp_path / "out", STOP)[0]) == (2 if task_bytes == 1 else 1)
    assert stored(tmp_path / "out", inputs) == ["b", "b too", "a", "a too"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


LINES = [
    *(json.dumps({"text": f"{word} {i}"}) for i, word in enumerate(["lory", "na\u00efve", "\U0001f600"] * 9)),
    *("", "{", '{"text": 1}', '{"text": "with a CR"}\r', '{"text": "lory 0"}', '{"id": "a", "text": "last"}'),
]


@pytest.mark.parametrize(("part_bytes", "end"), [(100, ""), (300, "\n"), (500, "\n\n")])
def test_the_parts_of_a_file_give_the_bytes_of_one_task(
    part_bytes: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids from line numbers, shards, repeated texts and dropped lines."""
    monkeypatch.setattr("loriini.corpus.documents.SHARD_CHARACTERS", 50)
    (tmp_path / "large.jsonl").write_text("\n".join(LINES) + end)
    inputs = [lines(tmp_path / "small.jsonl", "small"), f"{tmp_path}/large.jsonl:0.7"]
    built = stored(tmp_path / "whole", inputs, SKIP)
    assert any("naïve" in text for text in built)
    monkeypatch.setattr(streams, "PART_BYTES", part_bytes)
    opened, _ = open_streams(inputs, tmp_path / "out", SKIP)
    assert len(opened) == -(-(tmp_path / "large.jsonl").stat().st_size // part_bytes)
    assert stored(tmp_path / "parts", inputs, SKIP) == built
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    with pytest.raises(InputError, match=r"large\.jsonl:29: "):
        stored(tmp_path / "stop", inputs, STOP)


def test_a_line_that_is_too_long_is_dropped_from_the_part_in_which_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("readers", "records"):
        monkeypatch.setattr(f"loriini.sources.{module}.MAX_RECORD_BYTES", 100)
    path = lines(tmp_path / "a.jsonl", "a", "b" * 500, "c")
    assert stored(tmp_path / "whole", [path], SKIP) == ["a", "c"]
    monkeypatch.setattr(streams, "PART_BYTES", 64)
    assert stored(tmp_path / "parts", [path], SKIP) == ["a", "c"]
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.txt", "a.csv"])
def test_other_files_are_read_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PART_BYTES", 10)
    (tmp_path / name).write_text("text\n" * 20)
    assert len(open_streams([str(tmp_path / name)], tmp_path / "out", STOP)[0]) == 1


@pytest.mark.parametrize("remedy", ["skip", "fix"])
def test_files_read_before_a_bad_record_are_not_read_again(
    remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TASK_BYTES", 1)
    inputs = [lines(tmp_path / f"{name}.jsonl", name) for name in "abc"]
    (tmp_path / "c.jsonl").write_text("{\n")
    with pytest.raises(InputError, match=r"c\.jsonl:1"):
        stored(tmp_path / "out", inputs)
    before = finished_reads(tmp_path)
    assert len(before) == 2
    if remedy == "fix":
        lines(tmp_path / "c.jsonl", "c")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("loriini.corpus.documents._compare", stop)
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path / "out", inputs, SKIP if remedy == "skip" else STOP)
    assert before.items() < finished_reads(tmp_path).items()
    assert stored(tmp_path / "out", inputs, SKIP) == (["a", "b"] if remedy == "skip" else ["a", "b", "c"])
    assert not list(tmp_path.glob(".*.parts"))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    inputs = [lines(tmp_path / "a.jsonl", "a")]
    opened, identity = open_streams(inputs, tmp_path / "out", STOP)
    lines(tmp_path / "a.jsonl", "another")
    with pytest.raises(InputError, match="changed while it was read"):
        write_documents(tmp_path / "out", opened, {}, identity)


def test_a_corpus_inside_its_input_is_refused(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", "a")
    with pytest.raises(InputError, match="lies inside the input"):
        open_streams([str(tmp_path)], tmp_path / "corpora" / "out", STOP)


def test_a_pipe_in_a_folder_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    lines(folder / "a.jsonl", "a")
    os.mkfifo(folder / "pipe.jsonl")
    assert stored(tmp_path / "out", [str(folder)]) == ["a"]
    assert json.loads((tmp_path / "out" / "dropped.jsonl").read_text())["reason"] == "neither file nor folder"


def test_an_empty_file_is_dropped_and_an_empty_folder_refused(tmp_path: Path) -> None:
    inputs = [lines(tmp_path / "a.jsonl", "a"), lines(tmp_path / "b.jsonl")]
    assert stored(tmp_path / "out", inputs) == ["a"]
    dropped = json.loads((tmp_path / "out" / "dropped.jsonl").read_text())
    assert (dropped["where"], dropped["reason"]) == (inputs[1], "empty file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no document found"):
        open_streams([inputs[0], str(tmp_path / "empty")], tmp_path / "out", STOP)


def test_a_disk_that_fails_inside_a_file_in_parts_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("Input/output error")

    path = lines(tmp_path / "a.jsonl", "a", "b")
    monkeypatch.setattr(streams, "PART_BYTES", 20)
    monkeypatch.setattr("loriini.sources.readers.read_lines_within", fail)
    with pytest.raises(InputError, match=r"a\.jsonl: Input/output error; check the disk, and rerun"):
        stored(tmp_path / "out", [path], SKIP)
