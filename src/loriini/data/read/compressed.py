"""Plain, gzip and zstd files as streams of bytes or lines."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow

from loriini.data.read.files import open_binary, without_query

READ_BYTES = 1 << 16
UNPACKED_BYTES = 1 << 13
"""Bytes unpacked at once: of a damaged file, up to that many before the damage may be lost."""
BOMB_BYTES, BOMB_RATIO = 1 << 28, 500
"""A file is refused if it unpacks to more bytes than this and to more times its size (text: 2 to 30)."""
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Compressions by suffix."""

Span = tuple[int, int]
"""A part of a plain file: the lines that begin at bytes start to stop - 1."""
WHOLE: Span = (0, sys.maxsize)


def suffixes(path: str | Path) -> tuple[str, str]:
    """A file name's suffixes in lower case, of the format and of the compression: (".jsonl", ".gz")."""
    stem, last = os.path.splitext(without_query(path).lower())
    return (os.path.splitext(stem)[1], last) if last in COMPRESSIONS else (last, "")


def open_stream(path: str | Path) -> IO[bytes]:
    """Open a file for reading, decompressed by its suffix.

    Reading a damaged place raises OSError without an errno; a decompression bomb, EOFError.
    """
    file = open_binary(path)
    if compression := COMPRESSIONS.get(suffixes(path)[1]):
        return io.BufferedReader(_Unpacked(file, compression), UNPACKED_BYTES)
    return file


def check_bomb(unpacked: int, packed: int) -> None:
    """EOFError for a decompression bomb: more bytes than `packed` bytes of text can hold."""
    if unpacked > max(BOMB_BYTES, BOMB_RATIO * packed):
        raise EOFError(f"it unpacks to more than {BOMB_RATIO} times its size")


def read_lines(path: str | Path, span: Span = WHOLE, longest: int = sys.maxsize - 1) -> Iterator[bytes]:
    r"""Stream a file's lines without `\n`, or those within a span of a plain file.

    A line of more than `longest` bytes is truncated to `longest` + 1, so that an endless line does not fill
    the memory. The last line may end after the span.
    """
    place, stop = span
    with open_stream(path) as stream:
        if place:
            stream.seek(place - 1)
            place += _skip_line(stream) - 1  # the end of a line that begins before the span
        while place < stop and (line := stream.readline(longest + 1)):
            place += len(line)
            if len(line) > longest and not line.endswith(b"\n"):
                place += _skip_line(stream)
            yield line.removesuffix(b"\n")


def _skip_line(stream: IO[bytes]) -> int:
    """Read up to the end of the line; returns the number of bytes read."""
    count = 0
    while piece := stream.readline(READ_BYTES):
        count += len(piece)
        if piece.endswith(b"\n"):
            break
    return count


class _Unpacked(io.RawIOBase):
    """The contents of a compressed file; EOFError for a decompression bomb."""

    def __init__(self, file: IO[bytes], compression: str) -> None:
        self.file, self.unpacked = file, 0
        self.stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), compression)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self.stream.read(len(buffer))
        buffer[: len(content)] = content
        self.unpacked += len(content)
        check_bomb(self.unpacked, self.file.tell())
        return len(content)

    def close(self) -> None:
        self.file.close()
        super().close()
