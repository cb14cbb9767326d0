"""Archives and tables that are damaged, truncated or of another format than their name says."""

from pathlib import Path

import pytest
import zstandard
from sources.reads import COMPRESSED, FORMATS, GOOD, lines, skipping, texts

from loriini.common.errors import InputError


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_archive_keeps_what_was_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"web.jsonl{suffix}"
    numbers = [{"text": str(hash((i, i)))} for i in range(20_000)]
    whole = COMPRESSED[suffix](lines(*numbers))
    path.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(InputError, match=r"truncated or damaged archive .*fix the file"):
        texts(path)
    read, dropped = skipping(path)
    assert len(read) > 10_000
    assert read == [record["text"] for record in numbers[: len(read)]]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{path}:{len(read) + 1}", "truncated or damaged archive")
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    {
        "a.jsonl.gz": "damaged",
        "a.csv.zst": "damaged",
        "a.parquet": "unreadable parquet",
        "a.arrow": "unreadable parquet or Arrow",
    }.items(),
)
def test_files_of_another_format_than_their_suffix(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / name).write_bytes(b"plain text, and no archive at all")
    with pytest.raises(InputError, match=reason):
        texts(tmp_path / name)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_archive_without_a_byte_is_damaged(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.jsonl{suffix}").write_bytes(b"")
    with pytest.raises(InputError, match=r"damaged archive \(the file is empty\)"):
        texts(tmp_path / f"a.jsonl{suffix}")
    empty = tmp_path / f"b.jsonl{suffix}"
    empty.write_bytes(COMPRESSED[suffix](b""))
    (tmp_path / "c.jsonl").write_bytes(lines(GOOD))
    read, dropped = skipping(tmp_path)
    assert read == ["good"]
    assert [(d.where, d.reason) for d in dropped] == [
        (f"{tmp_path}/a.jsonl{suffix}", "truncated or damaged archive")
    ]


def test_a_zstd_window_above_the_limit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(packer.compress(lines(GOOD)) + packer.flush())
    with pytest.raises(InputError, match="window above 128 MiB, packed with --long"):
        texts(path)


def test_truncated_tables(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.arrow"):
        path = tmp_path / name
        path.write_bytes(FORMATS[name][:-30])
        with pytest.raises(InputError, match=f"{name}.*unreadable"):
            texts(path)
