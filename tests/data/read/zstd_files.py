"""zstandard files of several frames."""

import struct

import zstandard

EMPTY = zstandard.compress(b"")
SKIPPABLE = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 3) + b"\n{\n"


def in_frames(content: bytes, size: int, between: bytes = b"", checksum: bool = False) -> bytes:
    """The content in frames of `size` bytes, with `between` before, between and after them."""
    compressor = zstandard.ZstdCompressor(write_checksum=checksum)
    pieces = (content[start : start + size] for start in range(0, len(content), size))
    return between + b"".join(compressor.compress(piece) + between for piece in pieces)
