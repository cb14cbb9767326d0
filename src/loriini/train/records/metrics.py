"""`metrics.jsonl` and other files of one JSON object a step: read, checked and rewound."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from loriini.common.atomic import write_text
from loriini.common.checks import Count, Positive, mismatch
from loriini.common.errors import InputError

METRICS, EVALUATION, SAMPLES = RECORDS = ("metrics.jsonl", "evaluation.jsonl", "samples.jsonl")
Shape = tuple[int, ...]
KINDS: dict[str, Any] = {
    "tokens": Count,
    "experts": Count,
    "skipped": bool,
    "tokens_per_second": Positive,
}
"""The types of a step's fields that are read again."""
NUMBERS = (
    "loss",
    "auxiliary_loss",
    "output_z_loss",
    "gradient_norm",
    "learning_rate",
    "mfu",
    "peak_memory_bytes",
)
"""Fields that are numbers, or null where there is none."""
ARRAYS = frozenset(
    {
        "active",
        "load",
        "choices",
        "mean_gates",
        "activation_norms",
        "load_entropy",
        "gate_entropy",
        "confidence_entropy",
    }
)
"""Fields of `expert_metrics`: each of one shape in all steps of a number of experts."""
FLOAT32 = torch.finfo(torch.float32).max
MOST_NATS = 100
"""No entropy is larger, whatever the number of experts."""


def read_metrics(path: Path, *required: str) -> list[dict[str, Any]]:
    """The metrics of every step, as `read_records` does. InputError also for a field of another type."""
    steps = read_records(path, *required)
    shapes: dict[tuple[str, Any], Shape] = {}
    for number, step in enumerate(steps, 1):
        if problem := type_problem(step) or shape_problem(step, shapes):
            raise InputError(f"{path}: line {number} is no step's record ({problem}); remove that line")
    return steps


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
        if problem := record_problem(record, required):
            raise InputError(f"{path}: line {number} is no step's record ({problem}); remove that line")
        records.append(record)
    return records


def record_problem(record: Any, required: Sequence[str]) -> str | None:
    """What is wrong with a step's record, None if nothing is."""
    if not isinstance(record, dict):
        return "no JSON object"
    if absent := [name for name in ("step", *required) if name not in record]:
        return f"without {absent[0]}"
    expected = mismatch(record["step"], Count)
    return f"step is not {expected}" if expected else None


def type_problem(step: dict[str, Any]) -> str | None:
    """Which of a step's metrics has another type than those that are recorded."""
    for name in KINDS.keys() & step.keys():
        if expected := mismatch(step[name], KINDS[name]):
            return f"{name} is not {expected}"
    wrong = (name for name in NUMBERS if not _is_number(step.get(name)))
    return next((f"{name} is no number" for name in wrong), None)


def shape_problem(step: dict[str, Any], shapes: dict[tuple[str, Any], Shape]) -> str | None:
    """What is wrong with a record's arrays compared with earlier records; adds their shapes to `shapes`."""
    for name in sorted(ARRAYS & step.keys()):
        shape = _shape(step[name])
        if not shape or shapes.setdefault((name, step.get("experts")), shape) != shape:
            return f"{name} is no array of numbers as in other steps"
        most = MOST_NATS if name.endswith("entropy") else FLOAT32
        if name != "active" and _exceeds(step[name], most):
            return f"{name} is larger than can be"
    if not all(isinstance(mask, int) for mask in step.get("active", ())):
        return "active is not of integers"
    return None


def _is_number(value: Any) -> bool:
    """Whether it is null, or a number of a size that can be."""
    return isinstance(value, int | float | None) and not _exceeds(value, FLOAT32)


def _exceeds(value: Any, most: float) -> bool:
    """Whether a number, or one in nested lists, is larger in absolute value and finite."""
    if isinstance(value, list):
        return any(_exceeds(part, most) for part in value)
    return value is not None and most < abs(value) < math.inf


def _shape(value: Any) -> Shape | None:
    """The shape of a number (`null` is NaN) or of nested lists of numbers; None for anything else."""
    if value is None or isinstance(value, int | float):
        return ()
    inner = {_shape(part) for part in value} if isinstance(value, list) else set()
    first = inner.pop() if len(inner) == 1 else None
    return None if first is None else (len(value), *first)


def rewind(path: Path, step: int) -> None:
    """Drop the records of steps after `step`, so that a resumed run writes none twice."""
    write_text(path, records_until(path, step))


def records_until(path: Path, step: int) -> str:
    """The lines of the records up to `step`."""
    return "".join(json.dumps(m) + "\n" for m in read_records(path) if m["step"] <= step)
