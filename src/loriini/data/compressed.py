"""The lines of a plain, gzip or zstd file as a stream, and what a damaged archive raises."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

CHUNK = 1 << 16
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


def read_lines(path: Path) -> Iterator[bytes]:
    r"""Stream a file's lines without their `\n`, decompressed by its suffix (`.gz`, `.zst`).

    Every whole line before a damaged place is yielded; then one of DAMAGE is raised.
    """
    rest = b""
    for chunk in _chunks(path):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _chunks(path: Path) -> Iterable[bytes]:
    return _zstd_chunks(path) if path.suffix == ".zst" else _plain_chunks(path)


def _plain_chunks(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        # read1 returns what is there; read would lose it when the archive ends inside the same call.
        while chunk := file.read1(CHUNK):
            yield chunk


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    """Decompress frame by frame: zstandard's own stream reader takes a truncated file for a whole one."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    inside_frame = False
    with open(path, "rb") as file:
        while packed := file.read(CHUNK):
            while packed:
                if decompressor.eof:
                    decompressor = zstandard.ZstdDecompressor().decompressobj()
                yield decompressor.decompress(packed)
                inside_frame, packed = not decompressor.eof, decompressor.unused_data
    if inside_frame:
        raise EOFError("the file ends inside a compressed frame")
