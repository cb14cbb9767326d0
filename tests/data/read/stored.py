"""Inputs read into the `documents` stage, and what is found there."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loriini.data.prepare.text.documents import write_documents
from loriini.data.prepare.text.stored import stored_documents
from loriini.data.read import ReadOptions
from loriini.data.read.inputs import identity_of, input_files
from loriini.data.read.streams import FileStream, file_streams

STOP, SKIP = ReadOptions(), ReadOptions(on_error="skip")


def open_streams(inputs: Sequence[str], reading: ReadOptions) -> tuple[list[FileStream], dict[str, str]]:
    """The streams of inputs, and the digests of their files."""
    files = input_files(inputs)
    identity = identity_of(files)
    return list(file_streams(files, identity, reading)), identity


def stored(folder: Path, inputs: list[str], reading: ReadOptions = STOP) -> list[str]:
    opened, identity = open_streams(inputs, reading)
    built = write_documents(folder, opened, {"on_error": reading.on_error}, identity)
    return [document.text for document in stored_documents(built)]


def read_then_interrupted(folder: Path, inputs: list[str], reading: ReadOptions) -> None:
    """Read the inputs, and stop where the documents are compared."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loriini.data.prepare.text.documents._compare", stop)
        with pytest.raises(KeyboardInterrupt):
            stored(folder, inputs, reading)


def finished_reads(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob(".*.parts/read-*/result.json")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def dropped_places(folder: Path) -> list[tuple[str, str]]:
    dropped = map(json.loads, (folder / "dropped.jsonl").read_text().splitlines())
    return [(line["where"], line["reason"]) for line in dropped]
