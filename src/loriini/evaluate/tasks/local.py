"""Documents of tasks from local JSON lines, one object a line, in place of the Hub's data sets."""

import json
from collections.abc import Iterator
from pathlib import Path

from loriini.errors import InputError
from loriini.evaluate.tasks.catalog import TaskEntry
from loriini.evaluate.tasks.fields import TaskRow

KEPT_FOR_EXAMPLES = 64
"""Rows at most that are examples instead of questions, where a task has no file of examples."""

Splits = dict[str, list[TaskRow]]
"""`test`: the questions; `examples`: disjoint from them."""


def read_splits(name: str, task: TaskEntry, folder: Path, shots: int) -> Splits:
    """A task's questions and, where `shots` asks for them, examples to show before each.

    Examples are the file of them, or else the first rows of the questions'. InputError without a file, for a
    row that is not in the task's form, and for fewer examples than `shots`.
    """
    questions = find_file(name, task, folder)
    splits = {"test": read_questions(questions, task), "examples": []}
    if shots:
        stem = next(stem for stem in _stems(name, task) if questions.stem in _names(stem, task))
        examples = folder / f"{stem}{task.examples}.jsonl"
        if examples.exists():
            splits["examples"] = read_questions(examples, task)
        else:
            examples, rows = questions, splits["test"]
            kept = rows[: min(KEPT_FOR_EXAMPLES, len(rows) // 2)]
            splits = {"test": [row for row in rows if row not in kept], "examples": kept}
        if len(splits["examples"]) < shots:
            raise InputError(
                f"{examples}: {len(splits['examples'])} examples for task {name!r}, {shots} needed; "
                "use --num-fewshot"
            )
    return splits


def find_file(name: str, task: TaskEntry, folder: Path) -> Path:
    """The file of a task's questions; InputError where there is none."""
    names = [file for stem in _stems(name, task) for file in _names(stem, task)]
    found = next((path for file in names if (path := folder / f"{file}.jsonl").is_file()), None)
    if found is None:
        *first, last = (f"{file}.jsonl" for file in names)
        raise InputError(f"{folder}: no file for task {name!r}; put {', '.join(first)} or {last} there")
    return found


def _stems(name: str, task: TaskEntry) -> tuple[str, ...]:
    return task.stems or (name,)


def _names(stem: str, task: TaskEntry) -> list[str]:
    return [stem + ending for ending in task.endings]


def read_questions(file: Path, task: TaskEntry) -> list[TaskRow]:
    """A file's rows as the task's documents; InputError for a row of another form, and for no row."""
    documents = []
    for line, row in _rows(file):
        try:
            document = task.to_document(row) if task.form in row else row
        except (KeyError, ValueError, TypeError, IndexError) as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else error
            raise InputError(f"{file}:{line}: {reason}; docs/tasks.md has the form") from error
        if document is not None:
            documents.append(document)
    if not documents:
        raise InputError(f"{file}: no row for this task; docs/tasks.md has the form")
    return documents


def _rows(file: Path) -> Iterator[tuple[int, TaskRow]]:
    """Every line's number and object."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a readable text file ({error}); check the path") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{file}:{number}: not JSON ({error}); give one object a line") from error
            if not isinstance(row, dict):
                raise InputError(f"{file}:{number}: not a JSON object; give one object a line")
            yield number, row
