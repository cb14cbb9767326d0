"""Tasks on processes of this machine: spawned, not forked, and ended with their parent."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError, WorkerDied, is_out_of_memory
from loriini.common.progress import Advance
from loriini.data.jobs.tasks import SERIAL, Task, run_task

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "true",
}
"""Environment variables of a worker: one thread, also in the pool of the tokenizers library."""
WORKER = "LORIINI_WORKER"
"""The variable of a worker's number, from 0, by which workers take turns on several GPUs."""


@dataclass
class _Worker:
    """A process, our end of its pipe, and its current task."""

    process: BaseProcess
    pipe: Connection
    task: Task

    def give(self, task: Task) -> None:
        self.task = task
        with suppress(BrokenPipeError):  # the process died: `_is_done` raises
            self.pipe.send(task)


@dataclass(frozen=True)
class ProcessExecutor:
    """Runs tasks on up to `workers` processes; in this process when one is enough.

    A task's InputError is raised as it is, and so is an error of the machine; any other exception as a
    RuntimeError with its traceback, and the death of a process as a WorkerDied that names the task. Running
    tasks are then lost, finished ones kept.
    """

    workers: int

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        if min(self.workers, len(tasks)) <= 1:
            SERIAL(tasks, parts, advance)
            return
        waiting = deque(tasks)
        workers: list[_Worker] = []
        try:
            for number in range(min(self.workers, len(tasks))):
                with _deferred_signals():
                    workers.append(_start(number, waiting.popleft(), parts))
            busy = {worker.pipe: worker for worker in workers}
            while busy:
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    if _is_done(worker, advance):
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


def _start(number: int, task: Task, parts: Path) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, parts), daemon=True)
    with environment_variables({**WORKER_ENVIRONMENT, WORKER: str(number)}):
        process.start()
    theirs.close()  # so that the pipe ends when the process does
    worker = _Worker(process, ours, task)
    worker.give(task)
    return worker


def _is_done(worker: _Worker, advance: Advance) -> bool:
    """Receive a worker's message: whether its task is done. Raises what the task raised."""
    try:
        message = worker.pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        raise WorkerDied(
            f"the process of task {worker.task.name} died (exit code {worker.process.exitcode}; "
            "is there enough memory?); rerun to continue"
        ) from None
    if isinstance(message, Exception):
        raise message
    if isinstance(message, str):
        raise RuntimeError(f"{worker.task.name} failed:\n{message}")
    if isinstance(message, int):
        advance(message)
    return message is None


def _work(pipe: Connection, parts: Path) -> None:
    """A worker: run the tasks received until the parent closes the pipe."""
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def advance(count: int = 1, note: str = "") -> None:
        pipe.send(count)

    while True:
        message: Any = None
        try:
            try:
                task: Task = pipe.recv()
            except EOFError:
                return
            run_task(task, parts, advance)
        except Exception as error:
            message = _sent(error)
        pipe.send(message)


def _sent(error: Exception) -> Exception | str:
    """An error as the parent gets it: itself if the command line has a line for it, else its traceback."""
    if isinstance(error, InputError):
        return error
    if is_out_of_memory(error):
        return MemoryError(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        plain = OSError(error.errno, error.strerror, error.filename)  # a subclass may not be picklable
        plain.add_note(traceback.format_exc())
        return plain
    return traceback.format_exc()


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Signals that arrive inside are raised at its end; processes started inside get no SIGINT and SIGHUP.

    A process that is interrupted while it starts prints a traceback; its parent is too, and ends it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    deferred = {n: handler for n, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    resource_tracker.ensure_running()  # starting it resets the mask
    for number in deferred:
        signal.signal(number, lambda number, frame: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in deferred.items():
            signal.signal(number, handler)
    for arrived in received:
        signal.raise_signal(arrived)


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started inside the context."""
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
