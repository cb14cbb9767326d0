import gzip
import io
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from loriini.data.read.compressed import READ_BYTES, open_stream, read_lines, suffixes

PACK = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.fixture(params=PACK)
def suffix(request: pytest.FixtureRequest) -> str:
    return request.param


def compressed(tmp_path: Path, suffix: str, data: bytes) -> Path:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](data))
    return path


@pytest.mark.parametrize(
    "data", [b"", b"one", b"one\n", b"\n\none\n\ntwo", b"x" * 3 * READ_BYTES + b"\ny\n" + b"z" * READ_BYTES]
)
def test_streamed_lines_equal_those_of_the_whole_file(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = compressed(tmp_path, suffix, data)
    assert list(read_lines(path)) == [line.rstrip(b"\n") for line in io.BytesIO(data)]
    with open_stream(path) as stream:
        assert stream.read() == data


def test_members_and_frames_are_read_as_one_file(tmp_path: Path) -> None:
    skippable = b"\x5a\x2a\x4d\x18\x03\0\0\0\n{\n"
    zstd = zstandard.compress(b"") + zstandard.compress(b"a\nb") + skippable + zstandard.compress(b"c\n")
    for name, content in {"a.zst": zstd, "a.GZ": gzip.compress(b"a\nb") + gzip.compress(b"c\n")}.items():
        (tmp_path / name).write_bytes(content)
        assert list(read_lines(tmp_path / name)) == [b"a", b"bc"]


def test_a_line_above_the_limit_is_truncated_and_the_next_is_complete(tmp_path: Path, suffix: str) -> None:
    path = compressed(tmp_path, suffix, b"a\n" + b"x" * 5 * READ_BYTES + b"\nb\n" + b"y" * 9)
    assert list(read_lines(path, longest=8)) == [b"a", b"x" * 9, b"b", b"y" * 9]


def until_damage(path: Path) -> Iterator[bytes]:
    with pytest.raises(OSError, match="Truncated"):
        yield from read_lines(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"], indirect=True)
def test_lines_before_damage_are_read(tmp_path: Path, suffix: str) -> None:
    data = b"".join(b"%d\n" % (i * i * 7919 % 1000003) for i in range(50_000))
    path = compressed(tmp_path, suffix, data)
    path.write_bytes(path.read_bytes()[:-100])
    lines = list(until_damage(path))
    assert len(lines) > 25_000
    assert data.startswith(b"\n".join(lines))


@pytest.mark.parametrize("suffix", [".gz", ".zst"], indirect=True)
def test_a_bomb_is_refused_and_text_is_not(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loriini.data.read.compressed.BOMB_BYTES", 1000)
    text = random.Random(0).randbytes(2000).hex().encode()
    assert list(read_lines(compressed(tmp_path, suffix, text))) == [text]
    with pytest.raises(EOFError, match="more than 500 times"):
        list(read_lines(compressed(tmp_path, suffix, bytes(50_000_000))))


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


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a", b"a\n", b"\n\na\n\nbcd\r\nefghij\nkl", b"abcdefghijk\n\n", b"\xf0\x9f\x98\x80\n" * 2],
)
def test_every_line_is_within_one_span(content: bytes, size: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    spans = pairwise([*range(0, len(content), size), len(content)])
    assert [line for span in spans for line in read_lines(path, span)] == list(read_lines(path))


def test_a_long_line_belongs_to_the_span_in_which_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\n" + b"x" * 5 * READ_BYTES + b"\nb\n")
    assert list(read_lines(path, (0, READ_BYTES), 100)) == [b"a", b"x" * 101]
    assert list(read_lines(path, (READ_BYTES, 2 * READ_BYTES), 100)) == []
    assert list(read_lines(path, (READ_BYTES, 9 * READ_BYTES), 100)) == [b"b"]
