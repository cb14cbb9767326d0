"""The columns of parquet and Arrow files, decoded in another process: its death is an error of the file."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pyarrow
import pyarrow.ipc

from loriini.sources import decoder
from loriini.sources.files import is_remote, local_path, open_binary
from loriini.sources.records import MAX_RECORD_BYTES, BadRecord


@dataclass(frozen=True)
class Columns:
    """The selected columns of a table. `names` lists all of its columns."""

    names: list[str]
    batches: Iterator[pyarrow.RecordBatch | None]
    """None for a row that is too long."""


@contextmanager
def open_columns(path: str, form: Literal["parquet", "arrow"], wanted: Collection[str]) -> Iterator[Columns]:
    """Read those of the `wanted` columns that a file has. Raises BadRecord where it is damaged, and OSError.

    A remote file is first copied to this machine.
    """
    with _local_copy(path) as local, tempfile.TemporaryFile() as errors:
        arguments = [form, local, json.dumps(sorted(wanted)), str(MAX_RECORD_BYTES)]
        process = subprocess.Popen(
            [sys.executable, "-P", decoder.__file__, *arguments],  # -P: modules beside it are not imported
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin
        assert process.stdout

        def failure() -> BadRecord:
            code = process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            reason = said[-1] if code > 0 and said else f"decoding it ended with signal {-code}"
            return BadRecord("unreadable parquet or Arrow", reason, fix="file")

        def batches() -> Iterator[pyarrow.RecordBatch | None]:
            try:
                for batch, metadata in reader.iter_batches_with_custom_metadata():
                    yield None if metadata and decoder.TOO_LONG in metadata else batch
            except (pyarrow.ArrowException, OSError):
                raise failure() from None
            if process.wait():
                raise failure()

        try:
            try:
                reader = pyarrow.ipc.open_stream(process.stdout)
            except (pyarrow.ArrowException, OSError):
                raise failure() from None
            yield Columns(json.loads(reader.schema.metadata[b"columns"]), batches())
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@contextmanager
def _local_copy(path: str) -> Iterator[str]:
    """The path of a file on this machine, for a remote one of a temporary copy; OSError if unreadable."""
    with open_binary(path) as file:
        if not is_remote(path):
            yield local_path(path)
            return
        with tempfile.NamedTemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            yield copy.name
