"""Plain, gzip and zstd files as streams of lines or bytes."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from loriini.sources.files import open_binary

READ_BYTES = 1 << 16
COUNTED_BYTES = 1 << 20
ZSTD_READ_BYTES = 1 << 11
"""Bytes of a zstd file read at once: 4 bytes may unpack to 128 KiB, so these to 64 MiB."""
BOMB_BYTES, BOMB_RATIO = 1 << 28, 500
"""A file that unpacks to more than both, bytes and multiple of its size (2 to 30 for text), is refused."""
COMPRESSED = (".gz", ".zst")
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""What reading a truncated or damaged archive raises."""


def suffixes(path: str | Path) -> tuple[str, str]:
    """A file name's suffixes in lower case, of the format and of the compression: (".jsonl", ".gz")."""
    stem, last = os.path.splitext(str(path).lower())
    return (os.path.splitext(stem)[1], last) if last in COMPRESSED else (last, "")


def read_lines(path: str | Path, longest: int | None = None) -> Iterator[bytes]:
    r"""Stream a file's lines without `\n`, decompressed by its suffix (`.gz`, `.zst`).

    All complete lines before a damaged place are yielded, then one of DAMAGE is raised. A line of more than
    `longest` bytes is truncated somewhere after these, so that an endless line does not fill the memory.
    """
    begun: list[bytes] = []
    length = 0
    for chunk in _chunks(path):
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


def read_lines_within(path: str | Path, span: tuple[int, int], longest: int) -> Iterator[bytes]:
    """Stream those of an uncompressed file's lines that begin within a span (`InputFile.span`).

    A line that begins before is left out, the last one may end after the span. They are truncated as in
    `read_lines`.
    """
    start, stop = span
    with open_binary(path) as file:
        file.seek(start)
        place = start + (_skip_line(file) if start else 0)
        while place <= stop and (line := file.readline(longest + 1)):
            place += len(line)
            if not line.endswith(b"\n"):
                place += _skip_line(file)
            yield line.removesuffix(b"\n")


def count_newlines(path: str | Path, span: tuple[int, int]) -> int:
    """The line ends among the bytes [start, stop) of an uncompressed file."""
    start, stop = span
    count = 0
    with open_binary(path) as file:
        file.seek(start)
        while start < stop and (chunk := file.read(min(COUNTED_BYTES, stop - start))):
            start += len(chunk)
            count += chunk.count(b"\n")
    return count


def _skip_line(file: IO[bytes]) -> int:
    """Read to the next line; returns the bytes read."""
    skipped = 0
    while piece := file.readline(COUNTED_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


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


def _chunks(path: str | Path) -> Iterator[bytes]:
    compression = suffixes(path)[1]
    unpacked = 0
    with open_binary(path) as file:
        chunks = _zstd_chunks(file) if compression == ".zst" else _plain_chunks(file, compression == ".gz")
        for chunk in chunks:
            unpacked += len(chunk)
            if compression and unpacked > max(BOMB_BYTES, BOMB_RATIO * file.tell()):
                raise EOFError(f"it unpacks to more than {BOMB_RATIO} times its size")
            yield chunk


def _plain_chunks(file: IO[bytes], is_gzip: bool) -> Iterator[bytes]:
    # read1 returns what is available; read would lose it when the archive ends inside the same call.
    read = gzip.GzipFile(fileobj=file).read1 if is_gzip else file.read
    while chunk := read(READ_BYTES):
        yield chunk


def _zstd_chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame: zstandard's own stream reader accepts a truncated file."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    inside_frame = False
    while data := file.read(ZSTD_READ_BYTES):
        while data:
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
            yield decompressor.decompress(data)
            inside_frame, data = not decompressor.eof, decompressor.unused_data
    if inside_frame:
        raise EOFError("the file ends inside a compressed frame")
