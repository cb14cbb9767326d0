import gzip
import io
import random
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from zstd_files import EMPTY, SKIPPABLE, in_frames

from loriini.data.read.compressed import (
    DAMAGE,
    READ_BYTES,
    count_newlines,
    open_stream,
    read_lines,
    read_lines_within,
    suffixes,
)
from loriini.data.read.frames import frame_starts

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.fixture(params=PACK)
def suffix(request: pytest.FixtureRequest) -> str:
    return request.param


def compressed(tmp_path: Path, suffix: str, data: bytes) -> Path:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](data))
    return path


@pytest.mark.parametrize(
    "data",
    [b"", b"one", b"one\n", b"\n\none\n\ntwo", b"x" * 3 * READ_BYTES + b"\ny\n" + b"z" * READ_BYTES],
)
def test_streamed_lines_equal_those_of_the_whole_file(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = compressed(tmp_path, suffix, data)
    assert list(read_lines(path)) == [line.rstrip(b"\n") for line in io.BytesIO(data)]
    with open_stream(path) as stream:
        assert stream.read() == data


def test_a_line_above_the_limit_is_truncated_and_the_next_is_complete(tmp_path: Path, suffix: str) -> None:
    path = compressed(tmp_path, suffix, b"a\n" + b"x" * 50 * READ_BYTES + b"\nb\n")
    first, long, last = read_lines(path, longest=2 * READ_BYTES)
    assert (first, last) == (b"a", b"b")
    assert len(long) > 2 * READ_BYTES
    if suffix != ".zst":  # whose chunks grow with the ratio
        assert len(long) <= 4 * READ_BYTES


def test_a_long_line_needs_little_more_memory_than_itself(tmp_path: Path) -> None:
    path = compressed(tmp_path, "", b"x" * 50_000_000)
    tracemalloc.start()
    try:
        (line,) = read_lines(path)
        assert len(line) == 50_000_000
        assert tracemalloc.get_traced_memory()[1] < 2.2 * len(line)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".gz", ".zst"], indirect=True)
def test_lines_before_damage_are_read(tmp_path: Path, suffix: str) -> None:
    data = b"".join(b"%d\n" % (i * i * 7919 % 1000003) for i in range(50_000))
    path = compressed(tmp_path, suffix, data)
    path.write_bytes(path.read_bytes()[:-100])
    lines = []
    with pytest.raises(DAMAGE):
        lines.extend(read_lines(path))
    lines = []
    try:
        for line in read_lines(path):
            lines.append(line)
    except DAMAGE:
        pass
    assert len(lines) > 25_000
    assert data.startswith(b"\n".join(lines))
    with open_stream(path) as stream, pytest.raises(DAMAGE):
        stream.read()


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "a/b.jsonl": (".jsonl", ""),
        "a.x/B.JSONL.GZ": (".jsonl", ".gz"),
        "a.tar.zst": (".tar", ".zst"),
        "a.txt.gz.zst": (".gz", ".zst"),
        "a.gz": ("", ".gz"),
        "a": ("", ""),
    }.items(),
)
def test_suffixes(name: str, expected: tuple[str, str]) -> None:
    assert suffixes(Path(name)) == expected


def test_suffixes_ignore_case(tmp_path: Path) -> None:
    path = tmp_path / "A.GZ"
    path.write_bytes(gzip.compress(b"x\n"))
    assert list(read_lines(path)) == [b"x"]


CONTENTS = [
    b"",
    b"\n",
    b"a",
    b"a\n",
    b"\n\na\n\nbcd\r\nefghij\nkl",
    b"abcdefghijk\n\n",
    "\U0001f600\n".encode() * 2,
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("content", CONTENTS)
def test_every_line_is_within_one_span(content: bytes, size: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    check_spans(tmp_path / "a", range(0, len(content), size), content)


@pytest.mark.parametrize("between", [b"", EMPTY, SKIPPABLE])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("content", CONTENTS)
def test_every_line_is_within_one_span_of_frames(
    content: bytes, size: int, between: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(in_frames(content, size, between) or EMPTY)
    starts = list(frame_starts(path))
    for every in (1, 2, 5):
        check_spans(path, [0, *starts[every::every]], content)


def check_spans(path: Path, starts: Sequence[int], content: bytes) -> None:
    """The lines within all spans are those of the file, with their numbers."""
    found, newlines = [], 0
    for span in pairwise([*starts, path.stat().st_size]):
        found += enumerate(read_lines_within(path, span, 100), newlines + 2 if span[0] else 1)
        newlines += count_newlines(path, span)
    assert found == list(enumerate(read_lines(path), 1))
    assert newlines == content.count(b"\n")


@pytest.mark.parametrize("suffix", ["", ".zst"])
def test_a_long_line_is_read_once_and_truncated(suffix: str, tmp_path: Path) -> None:
    """Parts inside of it are not read beyond their ends, where the bytes are no frame."""
    path = tmp_path / f"a{suffix}"
    pieces = [b"a\n" + b"x" * 50 * READ_BYTES, b"x" * 50 * READ_BYTES]
    frames = [zstandard.compress(piece) if suffix else piece for piece in pieces]
    path.write_bytes(b"".join(frames) + b"no frame")
    begin, end = len(frames[0]), len(frames[0] + frames[1])
    assert list(read_lines_within(path, (begin, end), 100)) == []
    path.write_bytes(b"".join(frames))
    first, long = read_lines_within(path, (0, begin), 100)
    assert first == b"a"
    assert 100 < len(long) < 60 * READ_BYTES


def test_a_part_is_measured_by_its_own_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that unpacks to too much for it alone."""
    monkeypatch.setattr("loriini.data.read.compressed.BOMB_BYTES", 1000)
    text, zeros = zstandard.compress(random.Random(0).randbytes(2000)), zstandard.compress(bytes(200_000))
    path = tmp_path / "a.zst"
    path.write_bytes(text + zeros)
    assert count_newlines(path, (0, len(text))) < 100
    with pytest.raises(EOFError, match="more than 500 times"):
        count_newlines(path, (len(text), len(text + zeros)))
    assert sum(map(len, read_lines(path))) > 200_000
