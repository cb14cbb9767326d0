"""Parts of zstandard files of several frames; the naive twin is the whole file in one task."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
import zstandard
from stored import (
    SKIP,
    STOP,
    dropped_places,
    finished_reads,
    open_streams,
    read_in_parts,
    read_then_interrupted,
    stored,
)
from zstd_files import EMPTY, SKIPPABLE, in_frames

from covering import grid
from loriini.common.errors import InputError
from loriini.data.jobs.artifact import digest, file_hash
from loriini.data.jobs.processes import ProcessExecutor
from loriini.data.jobs.tasks import SERIAL, Executor
from loriini.data.read import Dropped, ReadOptions, streams
from loriini.data.read.document import Document
from loriini.data.read.files import open_binary
from loriini.data.read.streams import number_lines

NOISE = random.Random(0)
TEXTS = [f"{word} {NOISE.randbytes(12).hex()}" for word in ["lory", "na\u00efve", "\U0001f600"] * 10]
GOOD = [json.dumps({"text": text}, ensure_ascii=False) for text in TEXTS]
FLAWED = [*GOOD[:8], "", "{", '{"text": "\U0001f600"}\r', "\r", '{"text": 1}', *GOOD[8:], GOOD[0], "{}"]
BETWEEN = {"E": EMPTY, "S": SKIPPABLE}
WHOLE = 1 << 60
"""A size of parts that no file has."""


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loriini.common.atomic.fsync", lambda path: None)


def packed(path: Path, content: bytes | bytearray) -> Path:
    path.write_bytes(content)
    return path


def joined(lines: list[str], end: str = "\n") -> bytes:
    return ("\n".join(lines) + end).encode()


def outcome(path: Path, part_bytes: int, options: ReadOptions) -> tuple[int, list[Document | Dropped | str]]:
    """How many tasks read a file, and its documents, what is dropped, and the error that ends the reading."""
    found: list[Document | Dropped | str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "PART_BYTES", part_bytes)
        opened, identity = open_streams([str(path)], options)
    folder = path.with_name(f"out-{digest([identity, part_bytes])}")
    folder.with_suffix(".parts").mkdir(exist_ok=True)
    numbered = number_lines(opened, folder, SERIAL)
    if len(numbered) < len(opened):  # the whole is another task than the first part
        assert (numbered[0].identity == opened[0].identity, numbered[0].files[-1].is_part) == (False, False)
    try:
        for stream in numbered:
            for document in stream.read(found.append):
                found.append(document)
    except InputError as error:
        found.append(str(error))
    return len(numbered), found


def check_outcome(path: Path, part_bytes: int) -> int:
    """The parts of a file give what the whole gives; returns how many there are."""
    for options in (STOP, SKIP):
        parts, found = outcome(path, part_bytes, options)
        assert (1, found) == outcome(path, WHOLE, options)
    return parts


@grid(
    part_bytes=[1, 30, 200, 500],
    frame_bytes=[3, 10, 50, 200],
    between=["", "E", "S", "SEEE"],
    end=["", "\n", "\r\n"],
    flaws=[False, True],
)
def test_parts_of_frames_give_what_the_whole_file_gives(
    part_bytes: int, frame_bytes: int, between: str, end: str, flaws: bool, tmp_path: Path
) -> None:
    """Frames that end inside a line, a character or a line end; empty and skippable ones."""
    content = joined(FLAWED if flaws else GOOD, end)
    path = packed(
        tmp_path / "a.jsonl.zst", in_frames(content, frame_bytes, b"".join(BETWEEN[kind] for kind in between))
    )
    parts = check_outcome(path, part_bytes)
    assert 1 < parts <= path.stat().st_size / part_bytes + 1
    if part_bytes == 1:
        assert parts == len(list(streams.frame_starts(path)))


@pytest.mark.parametrize(("part_bytes", "execute"), [(150, ProcessExecutor(2)), (400, SERIAL)])
def test_parts_of_frames_give_the_bytes_of_one_task(
    part_bytes: int, execute: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards, repeated texts and dropped lines; between other files."""
    monkeypatch.setattr("loriini.data.prepare.text.documents.SHARD_CHARACTERS", 30)
    monkeypatch.setattr(streams, "TASK_BYTES", 100)
    (tmp_path / "small.jsonl").write_text('{"text": "small"}\n')
    path = packed(tmp_path / "large.jsonl.zst", in_frames(joined(FLAWED), 50, SKIPPABLE))
    inputs = [str(tmp_path / "small.jsonl"), f"{path}:0.7", f"again={path}"]
    assert read_in_parts(tmp_path, inputs, part_bytes, monkeypatch, execute)[1] > 4
    with pytest.raises(InputError, match=r"large\.jsonl\.zst:10: "):
        stored(tmp_path / "stop", inputs, STOP)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_a_file_in_parts_that_cannot_be_opened_is_reported_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = joined(GOOD)
    path = packed(tmp_path / name, in_frames(content, 50) if name.endswith(".zst") else content)
    good = packed(tmp_path / "b.jsonl", b'{"text": "good"}\n')
    inputs = [str(path), str(good)]
    monkeypatch.setattr(streams, "PART_BYTES", 100)
    monkeypatch.setattr(streams, "TASK_BYTES", 1)
    assert len(open_streams(inputs, SKIP)[0]) > 2

    def refuse(opened: str) -> IO[bytes]:
        if opened == str(path):
            raise PermissionError(13, "Permission denied")
        return open_binary(opened)

    def hash_of(hashed: Path) -> str:
        refuse(str(hashed)).close()
        return file_hash(hashed)

    for module in ("compressed", "frames"):
        monkeypatch.setattr(f"loriini.data.read.{module}.open_binary", refuse)
    monkeypatch.setattr("loriini.data.read.inputs.file_hash", hash_of)
    assert stored(tmp_path / "out", inputs, SKIP) == ["good"]
    assert dropped_places(tmp_path / "out") == [(str(path), "unreadable file")]
    with pytest.raises(InputError, match=rf"{name}: unreadable file .*Permission denied.*; fix the file"):
        stored(tmp_path / "stop", inputs, STOP)


def test_a_line_that_is_too_long_is_dropped_from_the_part_in_which_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("readers", "records"):
        monkeypatch.setattr(f"loriini.data.read.{module}.MAX_RECORD_BYTES", 100)
    long = json.dumps({"text": random.Random(0).randbytes(400).hex()})
    for lines in ([GOOD[0], long, GOOD[1]], [long, GOOD[1]], [GOOD[0], long]):
        path = packed(tmp_path / "a.jsonl.zst", in_frames(joined(lines), 30))
        assert check_outcome(path, 100) > 5
        dropped = [found.reason for found in outcome(path, 100, SKIP)[1] if isinstance(found, Dropped)]
        assert dropped == ["longer than 64 MiB"]


@pytest.mark.parametrize(
    "pack", [zstandard.compress, lambda content: zstandard.compress(content) + SKIPPABLE]
)
def test_a_file_of_one_frame_is_the_same_task_whatever_the_size_of_parts(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / "a.jsonl.zst", pack(joined(GOOD)))
    monkeypatch.setattr(streams, "PART_BYTES", WHOLE)
    whole, _ = open_streams([str(path)], STOP)
    monkeypatch.setattr(streams, "PART_BYTES", 1)
    assert open_streams([str(path)], STOP)[0] == whole


FRAMES = [zstandard.ZstdCompressor(write_checksum=True).compress(joined([line])) for line in GOOD[:10]]


def flipped(frame: bytes) -> bytes:
    """A frame whose checksum is wrong, which only unpacking shows."""
    return frame[:-1] + bytes([frame[-1] ^ 1])


def bomb(frame: bytes) -> bytes:
    return frame + zstandard.compress(b" " * 3_000_000)


def with_dictionary(frame: bytes) -> bytes:
    """A frame that names a dictionary, by one byte after its descriptor."""
    has_single_segment, one_byte = 0x20, 1
    assert frame[4] & has_single_segment
    return frame[:4] + bytes([frame[4] | one_byte, 7]) + frame[5:]


@pytest.mark.parametrize("place", [0, 1, 5, 9])
@pytest.mark.parametrize("damage", [flipped, bomb, with_dictionary, lambda frame: frame[:-5]])
def test_a_file_with_a_damaged_frame_is_read_as_one(
    damage: Callable[[bytes], bytes], place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the damage, which is reported once."""
    monkeypatch.setattr("loriini.data.read.compressed.BOMB_BYTES", 1000)
    path = tmp_path / "a.jsonl.zst"
    assert check_outcome(packed(path, b"".join(FRAMES)), 1) == 10
    frames = [*FRAMES[:place], damage(FRAMES[place]), *FRAMES[place + 1 :]]
    for part_bytes in (1, 200):
        assert check_outcome(packed(path, b"".join(frames)), part_bytes) == 1
    found = outcome(path, 1, SKIP)[1]
    assert [drop.reason for drop in found if isinstance(drop, Dropped)] == ["truncated or damaged archive"]


@pytest.mark.parametrize(
    "rest", [b"\n", b"{}\n" * 9, b"\0" * 9, *(FRAMES[0][:length] for length in range(1, 12))]
)
def test_a_file_that_ends_in_other_bytes_is_not_cut(
    rest: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / "a.jsonl.zst", b"".join(FRAMES) + rest)
    assert check_outcome(path, 1) == 1
    monkeypatch.setattr(streams, "PART_BYTES", 1)
    assert len(open_streams([str(path)], STOP)[0]) == 1


def test_changed_bytes_have_the_same_outcome_in_parts(tmp_path: Path) -> None:
    choose, damaged = random.Random(0), 0
    for i in range(40):
        content = bytearray(in_frames(joined(FLAWED), 60, SKIPPABLE, checksum=i % 2 == 0))
        for _ in range(choose.choice([1, 1, 5])):
            content[choose.randrange(len(content))] = choose.randrange(256)
        path = packed(tmp_path / f"{i}.jsonl.zst", content)
        damaged += check_outcome(path, choose.choice([1, 99])) == 1
    assert 20 < damaged < 40


def test_a_damaged_file_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files beside it, in its task and in parts, are as they are without parts."""
    monkeypatch.setattr(streams, "TASK_BYTES", 300)
    inputs = []
    for name, frames in {"a": FRAMES[:1], "b": [*FRAMES[1:5], flipped(FRAMES[5])], "c": FRAMES}.items():
        inputs.append(str(packed(tmp_path / f"{name}.jsonl.zst", b"".join(frames))))
    assert len(read_in_parts(tmp_path, inputs, 100, monkeypatch)[0]) == 10


def test_finished_parts_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(packed(tmp_path / "a.jsonl.zst", in_frames(joined(FLAWED), 50)))
    whole = stored(tmp_path / "whole", [path], SKIP)
    monkeypatch.setattr(streams, "PART_BYTES", 100)
    parts = len(open_streams([path], STOP)[0])
    with pytest.raises(InputError, match=r"a\.jsonl\.zst:10: not valid JSON"):
        stored(tmp_path / "out", [path])
    before = finished_reads(tmp_path)
    assert 1 < len(before) < parts
    with monkeypatch.context() as patch:
        patch.setattr(streams, "count_newlines", lambda *_: 1 / 0)  # the lines are counted already
        read_then_interrupted(tmp_path / "out", [path], SKIP)
    assert before.items() < finished_reads(tmp_path).items()
    assert len(finished_reads(tmp_path)) == parts
    assert stored(tmp_path / "out", [path], SKIP) == whole


@pytest.mark.parametrize("name", ["a.csv.zst", "a.txt.zst", "a.warc.zst", "a.parquet.zst", "a.jsonl.gz"])
def test_other_formats_are_read_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PART_BYTES", 10)
    path = packed(tmp_path / name, in_frames(joined(GOOD), 30))
    assert len(open_streams([str(path)], STOP)[0]) == 1
