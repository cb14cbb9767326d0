"""Tasks on a Slurm or Ray cluster, by datatrove's executors (the extras `loriini[scale]`, `loriini[ray]`).

Every machine must see inputs and output under the same paths. The process that the user started submits a
stage's tasks, waits for them, joins their results and continues with the next stage.
"""

import json
import logging
import os
import re
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from operator import itemgetter
from pathlib import Path
from textwrap import shorten
from typing import Any
from uuid import uuid4

from datatrove.executor.base import PipelineExecutor
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from loriini.common.atomic import write_json
from loriini.common.errors import InputError, WorkerDied, is_system_error
from loriini.common.progress import Advance, no_progress, repeated
from loriini.data.jobs.processes import WORKER_ENVIRONMENT, environment_variables
from loriini.data.jobs.tasks import Task, is_finished, run_task

RESERVED = (
    "self",
    "pipeline",
    "tasks",
    "workers",
    "logging_dir",
    "skip_completed",
    "depends",
    "depends_job_id",
    "job_id_retriever",
    "ray_remote_kwargs",
    "requeue_signals",
)
"""Arguments of datatrove's executors that are set here, or that no text can give."""
DICTIONARIES = ("sbatch_args", "srun_args")
"""Those that hold options of Slurm's commands, passed on unchanged."""
BOOLEANS = {"true": True, "false": False}
DECIMAL = re.compile(r"\d+\.\d+")
FAILED = "{}.failed.json"
WRONG_INPUT, MACHINE, BUG = "wrong input", "machine", "bug"
"""Kinds of failure."""
POLL_SECONDS = 5.0
GRACE_SECONDS = 60.0
"""How long a file may take to become visible on another machine."""


class TaskShare(PipelineStep):
    """The tasks of a rank: every `world_size`-th.

    They run in the folder where this was made, if the machine has it: relative paths are of that folder.
    """

    type = "LORIINI"
    name = "tasks"

    def __init__(self, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        super().__init__()
        self.tasks, self.parts, self.logs = tasks, parts, logs
        self.working_folder = Path.cwd()

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Run the rank's unfinished tasks; a failure is written to a file in `logs`, which ends all ranks."""
        with chdir(self.working_folder) if os.access(self.working_folder, os.X_OK) else nullcontext():
            self._run_rank(rank, world_size)

    def _run_rank(self, rank: int, world_size: int) -> None:
        for task in self.tasks[rank::world_size]:
            if any(self.logs.glob(FAILED.format("*"))):
                return
            if is_finished(task, self.parts):
                continue
            try:
                run_task(task, self.parts, no_progress)
            except Exception as error:
                write_json(self.logs / FAILED.format(task.name), _described(error))
                return


def _described(error: Exception) -> dict[str, str]:
    """An error as JSON: its kind, and its message or, for a bug, its traceback."""
    if isinstance(error, InputError):
        return {"kind": WRONG_INPUT, "message": str(error)}
    if is_system_error(error):
        return {"kind": MACHINE, "message": f"{socket.gethostname()}: {type(error).__name__}: {error}"}
    return {"kind": BUG, "message": traceback.format_exc()}


@dataclass(frozen=True)
class ClusterExecutor:
    """Runs tasks as up to `workers` jobs of a cluster, each with an equal share of them."""

    run: Callable[["ClusterExecutor", Sequence[Task], Path, Path], None]
    workers: int
    options: Mapping[str, Any]

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Run the tasks; raises what one of them raised, and WorkerDied when one is lost."""
        parts = parts.absolute()
        # Of this attempt alone: the jobs of one that was killed may still run, and fail.
        logs = parts / "logs" / f"{tasks[0].name}.{uuid4().hex}"
        logs.mkdir(parents=True)
        logger.disable("datatrove")
        with _progress_of(tasks, parts, advance):
            self.run(self, tasks, parts, logs)
        _check_failures(tasks, logs)
        if lost := [task.name for task in tasks if not is_finished(task, parts)]:
            raise WorkerDied(f"{len(lost)} tasks were lost, {lost[0]} the first; the jobs' logs: {logs}")

    def executor_of(
        self, kind: type[PipelineExecutor], tasks: Sequence[Task], parts: Path, logs: Path
    ) -> Any:
        """datatrove's executor of the tasks."""
        return kind(
            pipeline=[TaskShare(tasks, parts, logs)],
            tasks=min(self.workers, len(tasks)),
            logging_dir=str(logs),
            skip_completed=False,  # the tasks' own folders show what is finished
            **self.options,
        )


def slurm_executor(workers: int, options: Sequence[str]) -> ClusterExecutor:
    """Jobs of a Slurm array. `options` must give `partition` and `time`, the limit of a job."""
    parsed = _parse(options, SlurmPipelineExecutor)
    for name in ("partition", "time"):
        if name not in parsed:
            raise InputError(f"executor 'slurm' needs --executor-options {name}=…")
    return ClusterExecutor(_run_on_slurm, workers, parsed)


def ray_executor(workers: int, options: Sequence[str]) -> ClusterExecutor:
    """Ray workers of the cluster at RAY_ADDRESS, or of this machine."""
    return ClusterExecutor(_run_on_ray, workers, _parse(options, RayPipelineExecutor))


class _Slurm(SlurmPipelineExecutor):
    """With the ids of all arrays that it submits, and without the job that merges datatrove's own statistics.

    It submits several where one would have more than `max_array_size` jobs, and keeps the last id.
    """

    def __init__(self, **options: Any) -> None:
        self.submitted: list[str] = []
        super().__init__(**options)

    @property
    def job_id(self) -> str | None:
        return self.submitted[-1] if self.submitted else None

    @job_id.setter
    def job_id(self, job: str | None) -> None:
        if job:
            self.submitted.append(job)

    def launch_merge_stats(self) -> None:
        """Nothing to merge."""


def _run_on_slurm(cluster: ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
    """Submit arrays of jobs and wait for them; when we stop earlier, the remaining jobs are cancelled."""
    jobs = cluster.executor_of(_Slurm, tasks, parts, logs)
    try:
        _submit(jobs)
        gone_since = None
        while not all(is_finished(task, parts) for task in tasks):
            _check_failures(tasks, logs)
            arrays = ",".join(jobs.submitted)
            queue = subprocess.run(["squeue", "-h", "-j", arrays], capture_output=True, text=True)
            gone_since = (gone_since or time.monotonic()) if _is_gone(queue) else None
            if gone_since and time.monotonic() - gone_since > GRACE_SECONDS:
                _cancel(jobs.submitted)  # in case one is left
                return
            time.sleep(POLL_SECONDS)
    except BaseException:
        _cancel(jobs.submitted)
        raise


def _submit(jobs: _Slurm) -> None:
    try:
        with environment_variables(WORKER_ENVIRONMENT):  # sbatch passes it on
            jobs.run()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"executor 'slurm': sbatch failed ({error}); run it where jobs are submitted"
        ) from error


def _cancel(arrays: Sequence[str]) -> None:
    if arrays:
        subprocess.run(["scancel", *arrays], capture_output=True)


def _is_gone(queue: "subprocess.CompletedProcess[str]") -> bool:
    """Whether squeue no longer lists the jobs; False when squeue fails for another reason."""
    if queue.returncode:
        return "invalid job id" in queue.stderr.lower()
    return not queue.stdout.strip()


def _run_on_ray(cluster: ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
    import ray

    if not ray.is_initialized():
        try:
            ray.init(
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": WORKER_ENVIRONMENT},
            )
        except (ConnectionError, ValueError) as error:  # ValueError: an impossible address
            raise InputError(
                f"executor 'ray': no cluster can be joined ({shorten(str(error), 200)}); "
                "check RAY_ADDRESS, or unset it for this machine's own"
            ) from error
    cluster.executor_of(RayPipelineExecutor, tasks, parts, logs).run()


def _check_failures(tasks: Sequence[Task], logs: Path) -> None:
    """Raise the failure of the first task that wrote one."""
    for task in tasks:
        path = logs / FAILED.format(task.name)
        if path.exists():
            kind, message = itemgetter("kind", "message")(json.loads(path.read_text()))
            if kind == WRONG_INPUT:
                raise InputError(message)
            if kind == MACHINE:
                raise WorkerDied(f"{task.name} failed on {message}; rerun to continue")
            raise RuntimeError(f"{task.name} failed:\n{message}")


@contextmanager
def _progress_of(tasks: Sequence[Task], parts: Path, advance: Advance) -> Iterator[None]:
    """Advance the stage's progress when a task is finished."""
    running = list(tasks)

    def poll() -> None:
        done = [task for task in running if is_finished(task, parts)]
        for task in done:
            running.remove(task)
        advance(sum(task.size for task in done))

    try:
        with repeated(POLL_SECONDS, poll):
            yield
    finally:
        poll()


def _parse(options: Sequence[str], executor: type[PipelineExecutor]) -> dict[str, Any]:
    """`KEY=VALUE` as the executor's arguments; `sbatch_args.KEY=VALUE` is an item of a dictionary."""
    known = [name for name in signature(executor.__init__).parameters if name not in RESERVED]
    keys = [f"{name}.KEY" if name in DICTIONARIES else name for name in known]
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        name, dot, inner = key.partition(".")
        if not equals or name not in known or (not inner if name in DICTIONARIES else dot):
            raise InputError(f"executor option {option!r}: give KEY=VALUE, KEY one of: {', '.join(keys)}")
        if name == "sbatch_args" and value.lower() == "true":
            value = ""  # `--exclusive`, not `--exclusive=true`
        if inner:
            parsed.setdefault(name, {})[inner] = value
        else:
            parsed[name] = _value(value)
    return parsed


def _value(text: str) -> int | float | bool | str:
    """A number or a truth value that is written so, else the text."""
    if text.isdecimal() and str(int(text)) == text:  # 007 is a name
        return int(text)
    return float(text) if DECIMAL.fullmatch(text) else BOOLEANS.get(text.lower(), text)
