"""Stages as independent tasks, each run whole or not at all, and only once.

A task writes its files into a folder of its own, which is synced to disk and renamed into place with its
`result.json`. The data decides how a stage is divided into tasks, not the executor: the same tasks give the
same bytes in one process, in several (`processes.py`), or on a cluster (`cluster.py`).
"""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from loriini.common.atomic import atomic, discard, write_json
from loriini.common.progress import Advance, progress
from loriini.data.jobs.artifact import parts_folder

RESULT = "result.json"
COPY_BYTES = 1 << 24


@dataclass(frozen=True)
class Task:
    """One piece of a stage.

    `run(folder, advance)` writes files into `folder` and returns counts, a JSON object. To run in another
    process it must be picklable, such as a `functools.partial` of a module's function. `size` is the number
    of units that it adds to the stage's progress.
    """

    name: str
    run: Callable[[Path, Advance], dict[str, Any]]
    size: int = 0


class Executor(Protocol):
    """Runs tasks by `run_task`, in any order, on any process or machine."""

    @property
    def workers(self) -> int:
        """The number of tasks run at once."""

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Run all the tasks; raises what a task raises."""


@dataclass(frozen=True)
class SerialExecutor:
    """Runs the tasks in order, in this process."""

    workers: int = 1

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        for task in tasks:
            run_task(task, parts, advance)


SERIAL = SerialExecutor()


def run_tasks(title: str, tasks: Sequence[Task], temporary: Path, execute: Executor) -> list[Path]:
    """Run the tasks of the artifact that is being written into `temporary`; returns their folders, in order.

    Tasks that an earlier attempt finished are not run again.
    """
    parts = parts_folder(temporary)
    for leftover in parts.glob(".*"):
        discard(leftover)
    left = [task for task in tasks if not is_finished(task, parts)]
    with progress(title, sum(task.size for task in tasks) or None) as advance:
        advance(sum(task.size for task in tasks) - sum(task.size for task in left))
        if left:
            execute(left, parts, advance)
    return [parts / task.name for task in tasks]


def task_counts(folder: Path) -> dict[str, Any]:
    """What a finished task returned; not kept, as the counts of many tasks may not fit into memory."""
    counts: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return counts


def run_task(task: Task, parts: Path, advance: Advance) -> None:
    """Run a task; its folder appears in `parts` whole or not at all."""
    unique = parts / f".{task.name}.{uuid4().hex}"  # a cluster may run a requeued job twice
    try:
        with atomic(parts / task.name, unique) as folder:
            folder.mkdir()
            write_json(folder / RESULT, task.run(folder, advance))
    except OSError:
        if not is_finished(task, parts):
            raise


def concatenate_files(sources: Iterable[Path], target: Path) -> None:
    """Write the contents of files one after another into one file."""
    with open(target, "wb") as out:
        for source in sources:
            with open(source, "rb") as file:
                shutil.copyfileobj(file, out, COPY_BYTES)


def is_finished(task: Task, parts: Path) -> bool:
    """Whether the task's results are in `parts`."""
    return (parts / task.name / RESULT).exists()
