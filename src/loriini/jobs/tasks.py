"""A stage as independent tasks: each is done whole or not at all, and not again.

A task writes its files into a folder of its own, which is synced to disk and renamed into place with its
`result.json`. What a task is, is decided by the data, never by who does it: the same tasks give the same
bytes on one process, on many (`loriini.jobs.processes`), or on a cluster (`loriini.jobs.cluster`).
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from loriini.atomic import atomic, write_json
from loriini.jobs.artifact import full_disk_as_input_error, parts_folder
from loriini.progress import Advance, progress

_Item = TypeVar("_Item")

RESULT = "result.json"
COPY_BYTES = 1 << 24


@dataclass(frozen=True)
class Task:
    """One piece of a stage.

    `run(folder, advance)` writes its files into `folder` and returns its counts, a JSON object. To be done
    elsewhere it must be picklable: a `functools.partial` of a module's function. `size` is how far it moves
    the stage's progress bar in all.
    """

    name: str
    run: Callable[[Path, Advance], dict[str, Any]]
    size: int = 0


class Executor(Protocol):
    """Does every one of some tasks, by `perform`, in any order and anywhere."""

    @property
    def workers(self) -> int:
        """How many tasks are done at once."""

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Return when all are done; raise what a task raised."""


@dataclass(frozen=True)
class SerialExecutor:
    """Does one task after the other, here."""

    workers: int = 1

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Do the tasks in order."""
        for task in tasks:
            run_task(task, parts, advance)


SERIAL = SerialExecutor()


def run_tasks(title: str, tasks: Sequence[Task], temporary: Path, execute: Executor) -> list[dict[str, Any]]:
    """Do the tasks of the stage that is being written into `temporary`; returns their counts, in order.

    Those that an earlier attempt finished are not done again.
    """
    parts = parts_folder(temporary)
    for leftover in parts.glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)
    left = [task for task in tasks if not is_finished(parts, task)]
    with progress(title, sum(task.size for task in tasks) or None) as advance:
        advance(sum(task.size for task in tasks) - sum(task.size for task in left))
        if left:
            execute(left, parts, advance)
    missing = [task.name for task in tasks if not is_finished(parts, task)]
    if missing:
        raise RuntimeError(f"{parts}: {len(missing)} tasks were not done, {missing[0]} the first of them")
    return [json.loads((parts / task.name / RESULT).read_text()) for task in tasks]


def run_task(task: Task, parts: Path, advance: Advance) -> None:
    """Do one task: its folder appears below `parts` whole or not at all. A full disk is an InputError."""
    unique = parts / f".{task.name}.{uuid4().hex}"  # a job that was put back in a queue may run twice
    with full_disk_as_input_error(parts.parent):
        try:
            with atomic(parts / task.name, unique) as folder:
                folder.mkdir()
                write_json(folder / RESULT, task.run(folder, advance))
        except OSError:
            if not is_finished(parts, task):
                raise


def concatenate_files(sources: Iterable[Path], target: Path) -> None:
    """Write files one after the other into one."""
    with open(target, "wb") as out:
        for source in sources:
            with open(source, "rb") as file:
                shutil.copyfileobj(file, out, COPY_BYTES)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file of a task to its stage without copying it, where the file system has hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def is_finished(parts: Path, task: Task) -> bool:
    """Whether the task is done."""
    return (parts / task.name / RESULT).exists()


def group_by_size(
    items: Iterable[_Item], size_of: Callable[[_Item], int], size: int
) -> Iterator[list[_Item]]:
    """Consecutive items, as many as it takes to reach `size` together."""
    group: list[_Item] = []
    reached = 0
    for item in items:
        group.append(item)
        reached += size_of(item)
        if reached >= size:
            yield group
            group, reached = [], 0
    if group:
        yield group
