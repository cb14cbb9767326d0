"""Megatron's format, byte by byte."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from loriini.common.errors import InputError
from loriini.data.convert.megatron import read_megatron, write_megatron


def write(prefix: Path, lengths: tuple[int, ...] = (3, 2), dtype: str = "<u2") -> np.ndarray:
    tokens = np.arange(sum(lengths))
    write_megatron(prefix, [tokens[:4], tokens[4:]], np.array(lengths), dtype)
    return tokens


def test_bytes_of_the_index(tmp_path: Path) -> None:
    write(tmp_path / "set")
    expected = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 2, 3)
    expected += struct.pack("<2i2q3q", 3, 2, 0, 6, 0, 1, 2)
    assert (tmp_path / "set.idx").read_bytes() == expected
    assert (tmp_path / "set.bin").read_bytes() == struct.pack("<5H", *range(5))


@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<i8"])
def test_round_trip(tmp_path: Path, dtype: str) -> None:
    expected = write(tmp_path / "a.b", (3, 0, 2), dtype)
    tokens, offsets = read_megatron(tmp_path / "a.b")
    assert tokens.dtype == np.dtype(dtype)
    assert tokens.tolist() == expected.tolist()
    assert offsets.tolist() == [0, 3, 3, 5]


def test_a_document_may_have_several_sequences(tmp_path: Path) -> None:
    write(tmp_path / "set", (1, 2, 2))
    index = bytearray((tmp_path / "set.idx").read_bytes())
    index[26:34] = struct.pack("<Q", 3)
    (tmp_path / "set.idx").write_bytes(index[: 34 + 12 * 3] + struct.pack("<3q", 0, 2, 3))
    assert read_megatron(tmp_path / "set")[1].tolist() == [0, 3, 5]


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".idx", lambda b: b[:20]),
        (".idx", lambda b: b"OTHER" + b[5:]),  # another program's
        (".idx", lambda b: b[:9] + b"\x02" + b[10:]),  # another version
        (".idx", lambda b: b[:17] + b"\x07" + b[18:]),  # another type
        (".idx", lambda b: b[:18] + b"\xff" * 7 + b[25:]),  # more sequences than fit
        (".idx", lambda b: b[:-1]),
        (".idx", lambda b: b[:34] + struct.pack("<2i2q", -2, 7, 0, -4) + b[58:]),  # a negative length
        (".idx", lambda b: b[:42] + b"\x02" + b[43:]),  # sequences that do not follow one another
        (".idx", lambda b: b[:-8] + bytes(8)),  # documents that do not cover them
        (".bin", lambda b: b[:-1]),
    ],
)
def test_damage_is_refused(tmp_path: Path, suffix: str, damage) -> None:
    write(tmp_path / "set")
    path = tmp_path / f"set{suffix}"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=re.escape(path.name)):
        read_megatron(tmp_path / "set")


def test_a_set_without_tokens_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "set", ())
    with pytest.raises(InputError, match=r"set\.idx"):
        read_megatron(tmp_path / "set")
