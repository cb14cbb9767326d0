"""A plain, gzip or zstd file as a stream of lines or bytes, and what a damaged archive raises."""

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
PACKED = (".gz", ".zst")
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


def suffixes(path: str | Path) -> tuple[str, str]:
    """What a file's name ends in, in lower case: its format and how it is packed, as (".jsonl", ".gz")."""
    stem, last = os.path.splitext(str(path).lower())
    return (os.path.splitext(stem)[1], last) if last in PACKED else (last, "")


def read_lines(path: str | Path, longest: int | None = None) -> Iterator[bytes]:
    r"""Stream a file's lines without their `\n`, decompressed by its suffix (`.gz`, `.zst`).

    Every whole line before a damaged place is yielded; then one of DAMAGE is raised. A line that takes more
    than `longest` bytes is cut somewhere after these, so that one without an end does not fill the memory.
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


def open_stream(path: str | Path) -> IO[bytes]:
    """A file's bytes, decompressed by its suffix; reading past a damaged place raises one of DAMAGE."""
    return io.BufferedReader(_Stream(_chunks(path)), READ_BYTES)


class _Stream(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the start of `buffer`; 0 at the end."""
        while not self.rest:
            chunk = next(self.chunks, None)
            if chunk is None:
                return 0
            self.rest = memoryview(chunk)
        count = min(len(buffer), len(self.rest))
        buffer[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def _chunks(path: str | Path) -> Iterator[bytes]:
    packed = suffixes(path)[1]
    with open_binary(path) as file:
        yield from _zstd_chunks(file) if packed == ".zst" else _plain_chunks(file, packed == ".gz")


def _plain_chunks(packed: IO[bytes], is_gzip: bool) -> Iterator[bytes]:
    # read1 returns what is there; read would lose it when the archive ends inside the same call.
    read = gzip.GzipFile(fileobj=packed).read1 if is_gzip else packed.read
    while chunk := read(READ_BYTES):
        yield chunk


def _zstd_chunks(packed_file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame: zstandard's own stream reader takes a truncated file for a whole one."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    inside_frame = False
    while packed := packed_file.read(READ_BYTES):
        while packed:
            if decompressor.eof:
                decompressor = zstandard.ZstdDecompressor().decompressobj()
            yield decompressor.decompress(packed)
            inside_frame, packed = not decompressor.eof, decompressor.unused_data
    if inside_frame:
        raise EOFError("the file ends inside a compressed frame")
