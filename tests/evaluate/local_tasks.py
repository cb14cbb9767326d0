"""A local file of every task, as small as it can be, and what the harness asks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Example:
    """A file's row, and the question that it becomes: its context or contexts, its answers, the right one."""

    task: str
    file: str
    row: dict[str, Any]
    contexts: list[str]
    answers: list[str]
    gold: Any


ROWS = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
EXAMPLES = {example.task: example for example in (Example(**json.loads(row)) for row in ROWS)}
"""A question of every task, and of a file of each form for any task."""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
