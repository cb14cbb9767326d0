"""Failures of the machine, not of a file: they end the reading, also where flaws are skipped."""

import errno
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored import SKIP, STOP, stored

from loriini.common.errors import InputError
from loriini.data.read import decoder, read, streams


def lines(path: Path) -> str:
    path.write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    return str(path)


def parquet(path: Path) -> str:
    pq.write_table(pa.table({"text": ["a", "b", "c"]}), path, row_group_size=1)
    return str(path)


def fail(*_: object) -> None:
    raise OSError("Input/output error")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_disk_that_fails_inside_a_file_in_parts_ends_the_reading(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = (lines if name == "a.jsonl" else parquet)(tmp_path / name)
    monkeypatch.setattr(streams, "PART_BYTES", 20)
    monkeypatch.setattr("loriini.data.read.readers.read_lines_within", fail)
    monkeypatch.setattr("loriini.data.read.readers.open_columns", fail)
    with pytest.raises(InputError, match=rf"{name}: Input/output error; check disk and memory, and rerun"):
        stored(tmp_path / "out", [path], SKIP)


def after_the_first(number: int, patch: pytest.MonkeyPatch) -> None:
    """Let reading end with an OSError after the first record of every file."""
    records = read._records

    def first(*arguments: Any) -> Iterator[Any]:
        yield next(iter(records(*arguments)))
        raise OSError(number, "it fails")

    patch.setattr(read, "_records", first)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOMEM, errno.EMFILE, errno.ENOSPC])
def test_a_machine_that_fails_inside_a_whole_file_loses_none_of_it(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lines(tmp_path / "a.jsonl")
    with monkeypatch.context() as patch:
        after_the_first(number, patch)
        with pytest.raises(InputError, match=r"a\.jsonl: .*it fails; check disk and memory, and rerun"):
            stored(tmp_path / "out", [path], SKIP)
    assert stored(tmp_path / "out", [path], SKIP) == ["a", "b", "c"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_only_flaws_are_left_to_one_task_where_lines_are_counted(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(*_: object) -> int:
        raise OSError(number, "it fails")

    path = lines(tmp_path / "a.jsonl")
    monkeypatch.setattr(streams, "PART_BYTES", 20)
    monkeypatch.setattr(streams, "count_newlines", count)
    if number == errno.EACCES:
        assert stored(tmp_path / "out", [path], SKIP) == ["a", "b", "c"]
    else:
        with pytest.raises(InputError, match="it fails; check disk and memory, and rerun"):
            stored(tmp_path / "out", [path], SKIP)


def test_a_decoder_that_the_system_kills_ends_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "decoder.py"
    killed.write_text(f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})")
    monkeypatch.setattr(decoder, "__file__", str(killed))
    with pytest.raises(InputError, match=r"a\.parquet: decoding it was killed; check disk and memory"):
        stored(tmp_path / "out", [parquet(tmp_path / "a.parquet")], SKIP)


@pytest.mark.parametrize("reading", [STOP, SKIP], ids=["stop", "skip"])
def test_documents_of_a_flaw_that_vanished_are_compared_again(
    reading: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of what to keep was made without them, by a command that was killed after it."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    path = lines(tmp_path / "a.jsonl")
    with monkeypatch.context() as patch:
        after_the_first(errno.EACCES, patch)
        patch.setattr("loriini.data.prepare.text.documents._rewrite", stop)
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path / "out", [path], SKIP)
    assert stored(tmp_path / "out", [path], reading) == (["a"] if reading is SKIP else ["a", "b", "c"])
