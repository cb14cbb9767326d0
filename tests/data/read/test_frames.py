import random
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from zstd_files import EMPTY, SKIPPABLE, in_frames

from loriini.data.read import frames
from loriini.data.read.frames import frame_starts

RANDOM = random.Random(0).randbytes(300_000)
CONTENTS = [b"", b"lory\n", bytes(500_000), RANDOM, b"to be or not to be " * 20_000]
"""Blocks that are empty, of one byte repeated, not compressed, and compressed; several to a frame."""


def frame(content: bytes, checksum: bool, streamed: bool, level: int) -> bytes:
    """A frame with or without a checksum, a size in its header, and blocks that are cut short."""
    compressor = zstandard.ZstdCompressor(level, write_checksum=checksum)
    if not streamed:
        return compressor.compress(content)
    stream = compressor.compressobj()
    first = stream.compress(content[:7]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return first + stream.compress(content[7:]) + stream.flush()


def skippable(number: int, content: bytes) -> bytes:
    return bytes([0x50 + number]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


FRAMES = st.builds(frame, st.sampled_from(CONTENTS), st.booleans(), st.booleans(), st.sampled_from([1, 19]))
SKIPPED = st.builds(skippable, st.integers(0, 15), st.binary(max_size=20))


def starts_by_unpacking(content: bytes) -> Iterable[int]:
    """The naive twin of `frame_starts`: every frame is decompressed."""
    rest = content
    while rest:
        if not (rest[0] >> 4 == 5 and rest[1:4] == SKIPPABLE[1:4]):
            yield len(content) - len(rest)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        decompressor.decompress(rest)
        assert decompressor.eof
        rest = decompressor.unused_data


@given(st.lists(FRAMES | SKIPPED, max_size=6))
def test_frames_begin_where_unpacking_finds_them(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("frames") / "a.zst"
    path.write_bytes(b"".join(pieces))
    assert list(frame_starts(path)) == list(starts_by_unpacking(path.read_bytes()))


def test_a_file_of_other_bytes_than_whole_frames_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    whole = [frame(b"lory", True, False, 3), SKIPPABLE, EMPTY, in_frames(RANDOM, 300_000), SKIPPABLE]
    content = b"".join(whole)
    ends = {sum(map(len, whole[:count])) for count in range(len(whole) + 1)}
    shorter = [content[:length] for length in (*range(60), *range(len(content) - 20, len(content)))]
    refused = [piece for piece in shorter if len(piece) not in ends]
    refused += [content + rest for rest in (b"\0", b"\n{}", b"\x28\xb5\x2f\xfd", EMPTY[:-1], SKIPPABLE[:-1])]
    refused += [content + bytes([0x60]) + SKIPPABLE[1:]]
    reserved_block = EMPTY[:-3] + bytes([0b111, 0, 0])
    for damaged in (*refused, reserved_block):
        path.write_bytes(damaged)
        with pytest.raises((EOFError, zstandard.ZstdError)):
            list(frame_starts(path))
    path.write_bytes(content)
    assert len(list(frame_starts(path))) == 3


def test_too_many_blocks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(in_frames(RANDOM, 150_000))  # of two blocks each
    monkeypatch.setattr(frames, "MOST_BLOCKS", 4)
    assert len(list(frame_starts(path))) == 2
    monkeypatch.setattr(frames, "MOST_BLOCKS", 3)
    with pytest.raises(EOFError, match="more than 3 blocks"):
        list(frame_starts(path))


def test_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        def __init__(self, file: IO[bytes]) -> None:
            self.file, self.bytes = file, 0

        def __enter__(self) -> "Counted":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def read(self, count: int) -> bytes:
            self.bytes += count
            return self.file.read(count)

    path = tmp_path / "a.zst"
    path.write_bytes(in_frames(RANDOM * 4, 300_000, SKIPPABLE))
    counted = Counted(path.open("rb"))
    monkeypatch.setattr(frames, "open_binary", lambda _: counted)
    assert len(list(frame_starts(path))) == 4
    assert counted.bytes == 9 * 18 + 4 * 3 * 3  # a frame's header, and three blocks to each that has some
