"""The columns of parquet and Arrow files, decoded in another process, since a damaged file can crash it."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Literal

import pyarrow
import pyarrow.ipc

from loriini.data.read import decoder
from loriini.data.read.files import is_remote, local_path, machine_failed, open_binary
from loriini.data.read.records import MAX_RECORD_BYTES, BadRecord


@dataclass(frozen=True)
class Columns:
    """The selected columns of a table. `names` lists all of its columns."""

    names: list[str]
    batches: Iterator[pyarrow.RecordBatch | None]
    """None for a row that is too long."""


@contextmanager
def open_columns(
    path: str,
    form: Literal["parquet", "arrow"],
    wanted: Collection[str],
    row_groups: tuple[int, int] | None = None,
) -> Iterator[Columns]:
    """Read those of the `wanted` columns that a file has. Raises BadRecord where it is damaged, and OSError.

    If given, only the `row_groups` [start, stop) of a parquet file. A remote file is first copied to this
    machine.
    """
    arguments = json.dumps(sorted(wanted)), str(MAX_RECORD_BYTES), *map(str, row_groups or ())
    with _local_copy(path) as local, run_decoder(path, form, local, *arguments) as (stream, failure):

        def batches() -> Iterator[pyarrow.RecordBatch | None]:
            try:
                for batch, metadata in reader.iter_batches_with_custom_metadata():
                    yield None if metadata and decoder.TOO_LONG in metadata else batch
            except (pyarrow.ArrowException, OSError):
                raise _damaged(failure()) from None
            if failure():
                raise _damaged(failure())

        try:
            reader = pyarrow.ipc.open_stream(stream)
        except (pyarrow.ArrowException, OSError):
            raise _damaged(failure()) from None
        yield Columns(json.loads(reader.schema.metadata[b"columns"]), batches())


def read_row_groups(path: str) -> tuple[list[str], list[int]]:
    """The names of a local parquet file's columns, and the rows of each row group; BadRecord if damaged."""
    with run_decoder(path, "row_groups", local_path(path)) as (stream, failure):
        line = stream.read()
        if failure():
            raise _damaged(failure())
    counts = json.loads(line)
    return counts["columns"], counts["rows"]


def _damaged(why: str) -> BadRecord:
    return BadRecord("unreadable parquet or Arrow", why, fix="file")


@contextmanager
def run_decoder(path: str, *arguments: str) -> Iterator[tuple[IO[bytes], Callable[[], str]]]:
    """The output of the script `decoder`, which runs within the context, and a function to call at its end.

    The function waits for the process and returns why it failed, or "". It raises InputError, which names
    `path`, if the system killed the process.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", decoder.__file__, *arguments],  # -P: no imports from its folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin
        assert process.stdout

        def failure() -> str:
            code = process.wait()
            if code == -signal.SIGKILL:  # not from a damaged file: the system ran out of memory
                raise machine_failed(path, "decoding it was killed")
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            if code > 0 and lines:
                return lines[-1]
            return f"decoding it ended with signal {-code}" if code else ""

        try:
            yield process.stdout, failure
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """A file's path on this machine, or that of a temporary copy of a remote one; OSError if unreadable."""
    with open_binary(path) as file:
        if not is_remote(path):
            yield local_path(path)
            return
        with tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            yield copy.name
