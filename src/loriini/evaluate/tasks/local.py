"""Documents of tasks from local JSON lines, one object a line, in place of the Hub's data sets."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loriini.common.errors import InputError
from loriini.common.progress import inform
from loriini.evaluate.tasks.catalog import Request, TaskEntry
from loriini.evaluate.tasks.forms import SIMPLE_FORMS, TaskRow, like, simple_form

KEPT_FOR_EXAMPLES = 64
"""Rows at most that are examples instead of questions, where a task has no file of examples."""

ToDocument = Callable[[TaskRow], TaskRow | None]
UNFIT = (KeyError, ValueError, TypeError, IndexError)
"""What a row of another form raises where it is turned into a document."""


@dataclass(frozen=True)
class Question:
    """A document, and its place FILE:LINE."""

    document: TaskRow
    place: str = field(compare=False)


Splits = dict[str, list[Question]]
"""`test`: the questions; `examples`: disjoint from them."""


def read_splits(request: Request, task: TaskEntry, folder: Path) -> Splits:
    """A task's questions and, where examples are asked for, those to show before each.

    Examples are the file of them, or else the first rows of the questions'. InputError without a file, for a
    row that is not in the task's form, for too few examples, and where all questions are examples.
    """
    name, shots = request.task, request.shots_of(task)
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
            there = len(splits["examples"])
            raise InputError(
                f"{examples}: {there} examples for task {name!r}, {shots} needed; {request.fewer(there)}"
            )
        if not splits["test"]:
            raise InputError(f"{questions}: no question besides the examples, all rows are alike; add others")
    return splits


def find_file(name: str, task: TaskEntry, folder: Path, shown: bool = False) -> Path:
    """The file of a task's questions; InputError where there is none.

    Where several fit, it is the first of the task's stems and endings; `shown` says so.
    """
    names = [file for stem in _stems(name, task) for file in _names(stem, task)]
    files = [path for file in names if (path := folder / f"{file}.jsonl").is_file()]
    if not files:
        *first, last = (f"{file}.jsonl" for file in names)
        raise InputError(f"{folder}: no file for task {name!r}; put {', '.join(first)} or {last} there")
    if shown and len(files) > 1:
        others = ", ".join(path.name for path in files[1:])
        inform(f"{folder}: task {name!r} reads {files[0].name}, not {others}")
    return files[0]


def _stems(name: str, task: TaskEntry) -> tuple[str, ...]:
    return task.stems or (name,)


def _names(stem: str, task: TaskEntry) -> list[str]:
    return [stem + ending for ending in task.endings]


def read_questions(file: Path, task: TaskEntry) -> list[Question]:
    """A file's rows as the task's documents, all of the form of the first.

    InputError for a row of another form, a row whose right answer is not among its choices, and an empty
    file.
    """
    rows = list(_rows(file))
    to_document, questions = _form(task, rows[0][1] if rows else {}), []
    for line, row in rows:
        place = f"{file}:{line}"
        try:
            document = to_document(row)
        except UNFIT as error:
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{place}: {reason}; docs/tasks.md has the form") from error
        if document is not None:
            questions.append(Question(document, place))
    if not questions:
        raise InputError(f"{file}: no row for this task; docs/tasks.md has the form")
    return questions


def _form(task: TaskEntry, first: TaskRow) -> ToDocument:
    """What makes documents of a file's rows, by its first row."""
    if task.to_document is not None:
        return task.to_document if task.form in first else like(first)
    simple = simple_form(first)
    return SIMPLE_FORMS[simple][1] if simple else like(first)


def _rows(file: Path) -> Iterator[tuple[int, TaskRow]]:
    """Every line's number and object."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a readable text file ({error}); check the path") from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}:{number}: not JSON ({error}); give one object a line") from error
            if not isinstance(row, dict):
                raise InputError(f"{file}:{number}: not a JSON object; give one object a line")
            yield number, row
