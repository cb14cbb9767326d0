"""Plain, gzip and zstd files as streams of lines or bytes."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import zstandard

from loriini.data.read.files import open_binary, without_query

READ_BYTES = 1 << 16
ZSTD_READ_BYTES = 1 << 11
"""Bytes of a zstd file read at once: 4 bytes may unpack to 128 KiB, so these to 64 MiB."""
BOMB_BYTES, BOMB_RATIO = 1 << 28, 500
"""A file that unpacks to more bytes, and to more times its size (2 to 30 for text), is refused."""
COMPRESSED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
"""Compressions by suffix, with how files begin."""
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""What reading a truncated or damaged archive raises."""

Span = tuple[int, int]
"""The bytes [start, stop) of a file; of a zstd file, compressed bytes, where frames begin and end."""


def suffixes(path: str | Path) -> tuple[str, str]:
    """A file name's suffixes in lower case, of the format and of the compression: (".jsonl", ".gz")."""
    stem, last = os.path.splitext(without_query(path).lower())
    return (os.path.splitext(stem)[1], last) if last in COMPRESSED else (last, "")


def read_lines(path: str | Path, longest: int | None = None) -> Iterator[bytes]:
    r"""Stream a file's lines without `\n`, decompressed by its suffix (`.gz`, `.zst`).

    All complete lines before a damaged place are yielded, then one of DAMAGE is raised. A line of more than
    `longest` bytes is truncated somewhere beyond them, so that an endless line does not fill the memory.
    """
    return _lines(_chunks(path), longest)


def read_lines_within(path: str | Path, span: Span, longest: int) -> Iterator[bytes]:
    """Stream the lines of a file that begin within a span (`InputFile.span`), as `read_lines` does.

    A line that begins earlier is left out; the last one may end after the span.
    """
    start, stop = span
    within = _chunks(path, span)
    if start:
        end_of_line = next((chunk for chunk in within if b"\n" in chunk), None)
        if end_of_line is None:
            return  # the line at `start` ends after the span
        within = chain([end_of_line.partition(b"\n")[2]], within)
    yield from _lines(chain(within, _to_end_of_line(_chunks(path, (stop, sys.maxsize)))), longest)


def count_newlines(path: str | Path, span: Span) -> int:
    """Count the line ends within a span of a file, decompressed by its suffix; raises one of DAMAGE."""
    return sum(chunk.count(b"\n") for chunk in _chunks(path, span))


def _lines(chunks: Iterable[bytes], longest: int | None) -> Iterator[bytes]:
    begun: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        if longest is None or length <= longest:
            begun.append(first)
            length += len(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun, length = [others[-1]], len(others[-1])
    if length:
        yield b"".join(begun)


def _to_end_of_line(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes up to and including the first line end."""
    for chunk in chunks:
        line, end, _ = chunk.partition(b"\n")
        yield line + end
        if end:
            return


def open_stream(path: str | Path) -> IO[bytes]:
    """Open a file for reading, decompressed by its suffix; reading past a damaged place raises DAMAGE."""
    return io.BufferedReader(_ChunkFile(_chunks(path)), READ_BYTES)


class _ChunkFile(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.rest:
            chunk = next(self.chunks, None)
            if chunk is None:
                return 0
            self.rest = memoryview(chunk)
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def _chunks(path: str | Path, span: Span = (0, sys.maxsize)) -> Iterator[bytes]:
    start, stop = span
    compression = suffixes(path)[1]
    unpacked = 0
    with open_binary(path) as file:
        if start:
            file.seek(start)
        if compression == ".zst":
            chunks = _zstd_chunks(_pieces(file.read, ZSTD_READ_BYTES, stop - start))
        elif compression == ".gz":
            # read1 returns what is available; read would lose it when the archive ends inside the same call.
            chunks = _pieces(gzip.GzipFile(fileobj=file).read1, READ_BYTES, sys.maxsize)
        else:
            chunks = _pieces(file.read, READ_BYTES, stop - start)
        for chunk in chunks:
            unpacked += len(chunk)
            if compression and unpacked > max(BOMB_BYTES, BOMB_RATIO * (file.tell() - start)):
                raise EOFError(f"it unpacks to more than {BOMB_RATIO} times its size")
            yield chunk
        if compression and not unpacked and file.tell() == 0:
            raise EOFError("the file is empty")


def _pieces(read: Callable[[int], bytes], most: int, left: int) -> Iterator[bytes]:
    """At most `left` bytes, at most `most` at once."""
    while piece := read(min(most, left)):
        left -= len(piece)
        yield piece


def _zstd_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame: zstandard's own stream reader accepts a truncated file."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    inside_frame = False
    for data in pieces:
        while data:
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
            yield decompressor.decompress(data)
            inside_frame, data = not decompressor.eof, decompressor.unused_data
    if inside_frame:
        raise EOFError("the file ends inside a compressed frame")
