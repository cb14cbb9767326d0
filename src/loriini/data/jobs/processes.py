"""Tasks on processes of this machine: spawned, not forked, and ended with their parent."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from loriini.common.errors import WorkerDied
from loriini.common.progress import Advance
from loriini.common.signals import deferred_interrupts
from loriini.data.jobs.tasks import SERIAL, Task, run_task

WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "true"}
"""Environment variables of a worker: one thread, also in the pool of the tokenizers library."""
WORKER = "LORIINI_WORKER"
"""Environment variable with a worker's number, from 0, which says which of several GPUs it uses."""
PROGRESS_SECONDS = 1.0
"""Between two updates of the progress that workers count."""

_done: ContextVar[Any] = ContextVar("done")
"""In a worker: the units done by all workers together, a counter in shared memory."""


@dataclass(frozen=True)
class ProcessExecutor:
    """Runs tasks on up to `workers` processes; in this process when one is enough.

    Raises a task's error, or a RuntimeError with its traceback if the error cannot be pickled; WorkerDied if
    a process died. After either, the tasks that were running are lost, finished ones kept.
    """

    workers: int

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        count = min(self.workers, len(tasks))
        if count <= 1:
            SERIAL(tasks, parts, advance)
            return
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe(duplex=False)
        # creating shared memory starts Python's resource tracker
        with starting_processes(WORKER_ENVIRONMENT):
            number, done = context.Value("i"), context.Value("q")
        pool = ProcessPoolExecutor(count, context, _begin, (theirs, number, done))
        try:
            with starting_processes(WORKER_ENVIRONMENT):
                running = {pool.submit(_run, task, parts) for task in tasks}
            reported = 0
            while running:
                finished, running = wait(running, PROGRESS_SECONDS, FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                new = done.get_obj().value - reported  # read without the lock: a worker that died may hold it
                advance(new)
                reported += new
        except BrokenProcessPool:
            raise WorkerDied(
                f"a process at one of the tasks {tasks[0].name} to {tasks[-1].name} died (is there enough "
                "memory?); rerun to continue"
            ) from None
        finally:
            ours.close()  # ends the workers
            pool.shutdown(cancel_futures=True)
            theirs.close()


def _begin(parent: Connection, number: Any, done: Any) -> None:
    """Initialise a worker: set its number and the shared count, and make it end with its parent."""
    _done.set(done)
    with number.get_lock():
        os.environ[WORKER] = str(number.value)
        number.value += 1
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    """End this process when the parent closes its end of the pipe, or is killed."""
    parent.poll(None)
    os._exit(1)


def _run(task: Task, parts: Path) -> None:
    done = _done.get()

    def advance(count: int = 1, note: str = "") -> None:
        with done.get_lock():
            done.value += count

    try:
        run_task(task, parts, advance)
    except Exception as error:
        raise readable_elsewhere(task, error) from None


def readable_elsewhere(task: Task, error: Exception) -> Exception:
    """The error itself, or a RuntimeError with its traceback if it cannot be pickled and read again."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{task.name} failed:\n{''.join(traceback.format_exception(error))}")


@contextmanager
def starting_processes(environment: Mapping[str, str]) -> Iterator[None]:
    """Inside, processes start with `environment`, and with SIGINT, SIGHUP and SIGTERM blocked.

    Terminals and schedulers send these to all processes of a job, and one that is interrupted while it starts
    prints a traceback, or dies. Here only the parent acts on them: KeyboardInterrupt as the context ends.
    """
    with deferred_interrupts() as interrupted, environment_variables(environment):
        numbers = {signal.SIGINT, signal.SIGHUP, signal.SIGTERM}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        resource_tracker.ensure_running()  # it may unblock them
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if interrupted():
        raise KeyboardInterrupt


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the context, for this process and those that it starts."""
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
