"""The frames of a zstandard file, found by their headers (RFC 8878, section 3.1)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from loriini.data.read.files import open_binary

MOST_BLOCKS = 1 << 24
"""Blocks of a file that are read at most (2 TiB unpacked); without a limit, tiny ones would take hours."""
LONGEST_HEADER = 18
CHECKSUM_BYTES = 4
RLE_BLOCK, RESERVED_BLOCK = 1, 3


def frame_starts(path: str | Path) -> Iterator[int]:
    """Where the frames of a file on this machine begin; skippable ones are left out.

    Nothing is unpacked; only the headers of frames and of their blocks are read. Raises ZstdError or EOFError
    unless the file consists of whole frames, with at most MOST_BLOCKS blocks.
    """
    place, blocks = 0, iter(range(MOST_BLOCKS))
    with open_binary(path) as file:
        size = file.seek(0, os.SEEK_END)
        while place < size:
            file.seek(place)
            header = file.read(LONGEST_HEADER)
            if header[0] >> 4 == 5 and header[1:4] == b"\x2a\x4d\x18":  # a skippable frame
                place += 8 + int.from_bytes(header[4:8], "little")
            else:
                yield place
                has_checksum = zstandard.get_frame_parameters(header).has_checksum
                place = _end_of_blocks(file, place + zstandard.frame_header_size(header), blocks)
                place += CHECKSUM_BYTES if has_checksum else 0
    if place > size:
        raise EOFError("the file ends inside a compressed frame")


def _end_of_blocks(file: IO[bytes], place: int, blocks: Iterator[int]) -> int:
    """Where a frame's blocks end, which begin at `place`; `blocks` limits their number."""
    for _ in blocks:
        file.seek(place)
        header = file.read(3)
        bits = int.from_bytes(header, "little")
        is_last, kind, length = bits & 1, bits >> 1 & 3, bits >> 3
        if len(header) < 3 or kind == RESERVED_BLOCK:
            raise EOFError("the file does not continue with a block")
        place += 3 + (1 if kind == RLE_BLOCK else length)
        if is_last:
            return place
    raise EOFError(f"more than {MOST_BLOCKS} blocks")
