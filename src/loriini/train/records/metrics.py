"""Reading and rewinding of `metrics.jsonl` and other files with one JSON object per step."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_text
from loriini.common.checks import Count, mismatch
from loriini.common.errors import InputError

METRICS, EVALUATION = "metrics.jsonl", "evaluation.jsonl"
TAIL = 1 << 16
"""Bytes at the end of a file that are read for its last record; a longer record is not found."""


def read_records(path: Path, *required: str) -> list[dict[str, Any]]:
    """The JSON object of every step in a file of lines; a last line cut short by a kill is left out.

    InputError for any other line that is not such an object, or lacks its step or a `required` field.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); remove it") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            record = None
        if problem := _problem(record, required):
            raise InputError(f"{path}: line {number} is no step's record ({problem}); remove that line")
        records.append(record)
    return records


def last_record(path: Path) -> dict[str, Any] | None:
    """The last step's record, also while another process writes the file; None if there is none."""
    if not path.exists():
        return None
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        whole = file.read().split(b"\n")[:-1]  # what follows the last line end is still being written
    with suppress(ValueError, IndexError):
        record: dict[str, Any] = json.loads(whole[-1])
        return record
    return None


def _problem(record: Any, required: Sequence[str]) -> str | None:
    """What is wrong with a step's record; None if nothing is."""
    if not isinstance(record, dict):
        return "no JSON object"
    if absent := [name for name in ("step", *required) if name not in record]:
        return f"without {absent[0]}"
    expected = mismatch(record["step"], Count)
    return f"step is not {expected}" if expected else None


def rewind(path: Path, step: int) -> None:
    """Drop the records of steps after `step`, so that a resumed run writes none twice."""
    write_text(path, "".join(json.dumps(m) + "\n" for m in read_records(path) if m["step"] <= step))
