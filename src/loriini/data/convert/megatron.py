"""Megatron's indexed data sets: tokens in `PREFIX.bin`, and the place of each sequence in `PREFIX.idx`.

The index: a magic word, version 1, a code for the tokens' type, the numbers of sequences and of document
bounds; int32 lengths and int64 byte offsets of the sequences; int64 document bounds, counted in sequences,
starting with 0.

Axes: S sequences, N documents, T tokens.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loriini.common.atomic import atomic
from loriini.common.errors import InputError

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEADER = struct.Struct("<9sQBQQ")
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
CODES = {np.dtype(name): code for code, name in TYPES.items()}


def write_megatron(
    prefix: Path, blocks: Iterable[NDArray[np.integer]], lengths_S: NDArray[np.integer], dtype: str
) -> None:
    """Write sequences, each as a document, so that a reader that shuffles documents keeps them whole.

    Args:
        prefix: the path without `.bin` and `.idx`.
        blocks: the tokens, in consecutive pieces of any shape.
        lengths_S: tokens of each sequence.
        dtype: the type on disk, such as `<u2` or `<i4`.
    """
    kind = np.dtype(dtype)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    tokens, index = megatron_files(prefix)
    ends_S = np.cumsum(lengths_S, dtype=np.int64) * kind.itemsize
    with atomic(index) as unfinished_index, atomic(tokens) as unfinished_tokens:
        with open(unfinished_tokens, "wb") as file:
            file.writelines(block.astype(kind).tobytes() for block in blocks)
        with open(unfinished_index, "wb") as file:
            file.write(HEADER.pack(MAGIC, VERSION, CODES[kind], len(lengths_S), len(lengths_S) + 1))
            file.write(lengths_S.astype("<i4").tobytes())
            file.write(np.concatenate([np.zeros(1, "<i8"), ends_S[:-1]]).astype("<i8").tobytes())
            file.write(np.arange(len(lengths_S) + 1, dtype="<i8").tobytes())


def read_megatron(prefix: Path) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    """Memory-map an indexed data set: its tokens (T,), and the offsets of its documents (N + 1,).

    Raises InputError when a file is absent, of another format, or shorter than the index states, and when
    there are no tokens.
    """
    tokens, index = megatron_files(prefix)
    for path in (index, tokens):
        if not path.exists():
            raise InputError(f"{path}: no such file; a Megatron data set is a .bin and an .idx of one name")
    with open(index, "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise InputError(f"{index}: not a Megatron index (other first bytes); check the path")
    _, version, code, sequences, bounds = HEADER.unpack(head)
    if version != VERSION or code not in TYPES:
        raise InputError(f"{index}: version {version}, type {code} cannot be read; write integers, version 1")
    if index.stat().st_size < HEADER.size + 12 * sequences + 8 * bounds:
        raise InputError(f"{index}: ends before its {sequences} sequences; copy it again")
    kind = np.dtype(TYPES[code])
    places = (HEADER.size, HEADER.size + 4 * sequences, HEADER.size + 12 * sequences)
    lengths_S = np.fromfile(index, "<i4", sequences, offset=places[0]).astype(np.int64)
    pointers_S = np.fromfile(index, "<i8", sequences, offset=places[1])
    bounds_N = np.fromfile(index, "<i8", bounds, offset=places[2])
    starts_S = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_S)])
    follow = (lengths_S >= 0).all() and np.array_equal(pointers_S, starts_S[:-1] * kind.itemsize)
    cover = bounds and bounds_N[0] == 0 and bounds_N[-1] == sequences and (np.diff(bounds_N) >= 0).all()
    if not follow or not cover or not starts_S[-1]:
        what = "its sequences do not follow one another, its documents do not cover them, or none has a token"
        raise InputError(f"{index}: {what}; write the data set again")
    if tokens.stat().st_size < int(starts_S[-1]) * kind.itemsize:
        raise InputError(f"{tokens}: ends before the {starts_S[-1]} tokens of its index; copy it again")
    return np.memmap(tokens, kind, mode="r", shape=(int(starts_S[-1]),)), starts_S[bounds_N]


def megatron_files(prefix: Path) -> tuple[Path, Path]:
    """The files of an indexed data set: its tokens and its index."""
    return prefix.with_name(f"{prefix.name}.bin"), prefix.with_name(f"{prefix.name}.idx")
