"""Parquet and Arrow are decoded in another process, whose end is an error of the file."""

import io
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loriini.data.read import columns, decoder
from loriini.data.read.columns import open_columns
from loriini.data.read.records import BadRecord

TABLE = pa.table({"text": ["a", "b" * 2000, "c"], "n": [1, 2, 3], "other": [0.5, 1.5, 2.5]})


def write_parquet(path: Path) -> str:
    pq.write_table(TABLE, path)
    return str(path)


def test_the_wanted_columns_are_read_and_all_are_named(tmp_path: Path) -> None:
    with open_columns(write_parquet(tmp_path / "a"), "parquet", ["text", "n", "absent"]) as table:
        assert table.names == ["text", "n", "other"]
        assert [batch.to_pydict() for batch in table.batches if batch] == [
            TABLE.select(["text", "n"]).to_pydict()
        ]


def test_a_row_that_is_too_long_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_RECORD_BYTES", 1000)
    with open_columns(write_parquet(tmp_path / "a"), "parquet", ["text"]) as table:
        assert [batch and batch.to_pydict() for batch in table.batches] == [
            {"text": ["a"]},
            None,
            {"text": ["c"]},
        ]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGXCPU])
def test_a_crash_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    crashing = tmp_path / "decoder.py"
    crashing.write_text(f"import os; os.kill(os.getpid(), {int(number)})")
    monkeypatch.setattr(decoder, "__file__", str(crashing))
    with (
        pytest.raises(BadRecord, match=f"decoding it ended with signal {int(number)}"),
        open_columns(write_parquet(tmp_path / "a"), "parquet", ["text"]),
    ):
        pass


def test_a_crash_of_the_decoders_clean_up_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of Arrow that still run can end it with a signal; all was sent, or said, before."""
    crashing = tmp_path / "decoder.py"
    run = f"runpy.run_path({decoder.__file__!r}, run_name='__main__')"
    crashing.write_text(f"import atexit, os, runpy\natexit.register(os.abort)\n{run}\n")
    path = write_parquet(tmp_path / "a")
    monkeypatch.setattr(decoder, "__file__", str(crashing))
    with open_columns(path, "parquet", ["text"]) as table:
        assert sum(len(batch) for batch in table.batches if batch) == 3
    with pytest.raises(BadRecord, match="metadata bytes"), open_columns(path, "arrow", []):
        pass


def test_offsets_that_lead_outside_are_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, pa.schema({"text": pa.string()})) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(["wo", "rds"])], names=["text"]))
    data = file.getvalue().replace(b"\2\0\0\0\5\0\0\0", b"\2\0\0\0\0\0\0\x40")
    assert data != file.getvalue()
    path = tmp_path / "a.arrow"
    path.write_bytes(data)
    with open_columns(str(path), "arrow", ["text"]) as table, pytest.raises(BadRecord, match=r"ffset|bounds"):
        list(table.batches)


def test_the_process_ends_when_its_reader_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = columns.subprocess.Popen

    def start(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(columns.subprocess, "Popen", start)
    big = tmp_path / "big"
    pq.write_table(pa.table({"text": ["words" * 1000] * 2000}), big)
    with open_columns(str(big), "parquet", ["text"]) as table:
        next(table.batches)
    assert started[0].returncode is not None
    assert not os.path.exists(f"/proc/{started[0].pid}")
