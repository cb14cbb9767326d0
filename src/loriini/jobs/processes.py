"""Tasks on this machine's processes: started afresh (no fork), ended with the one that started them."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from loriini.errors import InputError, WorkerDied
from loriini.jobs.tasks import SERIAL, Task, run_task
from loriini.progress import Advance

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "true",
}
"""Of a worker: one thread; the tokenizers library keeps a pool, of one."""


@dataclass
class _Worker:
    """A process, our end of its pipe, and the task it has."""

    process: BaseProcess
    pipe: Connection
    task: Task

    def give(self, task: Task) -> None:
        """Let it do a task."""
        self.task = task
        with suppress(BrokenPipeError):  # a process that died: `_done` hears of it
            self.pipe.send(task)


@dataclass(frozen=True)
class ProcessExecutor:
    """Does tasks on `workers` processes; here, where one is enough.

    A task's InputError is raised as it is, any other exception as a RuntimeError that holds its traceback, a
    process that died as a WorkerDied that names the task. The tasks then under way are lost, those finished
    are not.
    """

    workers: int

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Do the tasks, each by the first process that is free."""
        if min(self.workers, len(tasks)) <= 1:
            SERIAL(tasks, parts, advance)
            return
        waiting = deque(tasks)
        workers: list[_Worker] = []
        try:
            for _ in range(min(self.workers, len(tasks))):
                workers.append(_start(waiting.popleft(), parts))
            busy = {worker.pipe: worker for worker in workers}
            while busy:
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    if _done(worker, advance):
                        if waiting:
                            worker.give(waiting.popleft())
                        else:
                            del busy[worker.pipe]
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join()
                worker.pipe.close()


def _start(task: Task, parts: Path) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, parts), daemon=True)
    with environment_variables(WORKER_ENVIRONMENT):
        process.start()
    theirs.close()  # so that the pipe ends when the process does
    worker = _Worker(process, ours, task)
    worker.give(task)
    return worker


def _done(worker: _Worker, advance: Advance) -> bool:
    """Hear what a worker says: whether its task is done; raises what the task raised."""
    try:
        message = worker.pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        raise WorkerDied(
            f"the process that did {worker.task.name} died (exit code {worker.process.exitcode}; "
            "is there enough memory?); rerun to go on"
        ) from None
    if isinstance(message, InputError):
        raise message
    if isinstance(message, str):
        raise RuntimeError(f"{worker.task.name} failed:\n{message}")
    if isinstance(message, int):
        advance(message)
    return message is None


def _work(pipe: Connection, parts: Path) -> None:
    """A worker's life: do the tasks that come, until there are no more or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def advance(count: int = 1, note: str = "") -> None:
        pipe.send(count)

    while True:
        message: Any = None
        try:
            run_task(pipe.recv(), parts, advance)
        except EOFError:
            return
        except InputError as error:
            message = error
        except Exception:
            message = traceback.format_exc()
        pipe.send(message)


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    wait([parent.sentinel])
    os._exit(1)
