"""Questions of tasks from local files of JSON lines, one object per line, for the YAML in `files/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from lm_eval.api.samplers import ContextSampler

from loriini.common.errors import InputError
from loriini.common.grouping import grouped
from loriini.data.read.formats import read_json_lines
from loriini.data.read.records import BadRecord, Fields

ENDINGS = ("", "_test", "_validation", "_val", "_dev")
"""Suffixes of a task's file name, in order of preference."""
KEPT_FOR_EXAMPLES = 64
"""The most rows that become examples instead of questions if a task has no file of examples."""

TaskRow = dict[str, Any]


def json_lines(
    folder: str, name: str, shots: int, stems: Sequence[str] = (), only: Sequence[str] = (), **_: Any
) -> dict[str, Dataset]:
    """A task's questions (`test`) and the `examples` from which `shots` are drawn.

    `stems`: beginnings of its file's name, by default the task's name. `only`: a field, then prefixes; rows
    whose field has one of them belong to the task. Examples are in the file of the same stem that ends in
    `_demos`; without one, the first rows are examples instead of questions. InputError if there is no file,
    or too few examples, and for a line that is not an object.
    """
    stem, file = find_file(Path(folder), name, stems)
    questions = read_rows(file, only)
    demos = file.with_name(f"{stem}_demos.jsonl")
    examples = questions[:1]  # never shown
    if shots and demos.is_file():
        examples = read_rows(demos, only)
    elif shots:
        examples = questions[: min(KEPT_FOR_EXAMPLES, len(questions) // 2)]
        questions = [row for row in questions if row not in examples]
    if shots > len(examples):
        source = demos if demos.is_file() else file
        raise InputError(
            f"{source}: {len(examples)} examples for task {name!r}, {shots} needed; use --num-fewshot"
        )
    if not questions:
        raise InputError(f"{file}: no question for task {name!r} besides the examples; add others")
    return {"test": as_dataset(questions, file), "examples": as_dataset(examples, file)}


def mmlu(folder: str, shots: int, **_: Any) -> dict[str, Dataset]:
    """MMLU's questions, each with the first `shots` examples of its subject."""
    file = find_file(Path(folder), "mmlu", (), ("_test", ""))[1]
    questions, examples = read_rows(file), list[TaskRow]()
    if shots:
        examples = read_rows(find_file(Path(folder), "mmlu", (), ("_dev",))[1])
    by_subject = grouped(examples, lambda row: row.get("subject"))
    for number, row in enumerate(questions, 1):
        row["examples"] = by_subject.get(row.get("subject"), [])[:shots]
        if len(row["examples"]) < shots:
            raise InputError(
                f"{file}: question {number}: {len(row['examples'])} examples of {row.get('subject')} in "
                f"mmlu_dev.jsonl, {shots} needed; use --num-fewshot"
            )
    return {"test": as_dataset(questions, file)}


class OwnExamples(ContextSampler):
    """Shows the examples in the question's own field `examples`."""

    def sample(self, n: int, eval_doc: TaskRow | None = None, df: Any = None, **_: Any) -> Sequence[TaskRow]:
        found: list[TaskRow] = eval_doc["examples"][:n] if eval_doc else []
        return found


def find_file(
    folder: Path, name: str, stems: Sequence[str] = (), endings: Sequence[str] = ENDINGS
) -> tuple[str, Path]:
    """The stem and path of a task's file, the first of its stems and endings that exists, or InputError."""
    names = [(stem, f"{stem}{ending}.jsonl") for stem in stems or (name,) for ending in endings]
    for stem, file in names:
        if (folder / file).is_file():
            return stem, folder / file
    listed = ", ".join(file for _, file in names)
    raise InputError(f"{folder}: no file for task {name!r}; put one of these there: {listed}")


def read_rows(file: Path, only: Sequence[str] = ()) -> list[TaskRow]:
    """The objects of a file; with `only` (see `json_lines`), those that belong to the task."""
    rows = []
    for number, row in read_json_lines(str(file), Fields()):
        if isinstance(row, BadRecord):
            raise InputError(f"{file}:{number}: {row}; give one object a line")
        if not only or str(row.get(only[0])).startswith(tuple(only[1:])):
            rows.append(row)
    if not rows:
        raise InputError(f"{file}: no row for this task; docs/tasks.md has the form")
    return rows


def as_dataset(rows: list[TaskRow], file: Path) -> Dataset:
    """Rows as the harness reads them. InputError if a field has values of different types."""
    try:
        return Dataset.from_list(rows)
    except Exception as error:  # pyarrow's, of several classes
        raise InputError(
            f"{file}: its rows do not have one form ({error}); docs/tasks.md has the forms"
        ) from error
