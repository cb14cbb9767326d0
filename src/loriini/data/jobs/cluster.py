"""Tasks on a Slurm or Ray cluster, by datatrove's executors (the extras `loriini[scale]`, `loriini[ray]`).

Every machine must see inputs and output under the same paths. The process that the user started submits
a stage's tasks as jobs, waits for them, joins their results and continues with the next stage.
"""

import json
import logging
import socket
import subprocess
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from textwrap import shorten
from typing import Any
from uuid import uuid4

from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from loriini.common.atomic import write_json
from loriini.common.errors import InputError, WorkerDied, is_system_error
from loriini.common.progress import Advance, no_progress, repeated
from loriini.data.jobs.processes import WORKER_ENVIRONMENT, environment_variables
from loriini.data.jobs.tasks import Task, is_finished, run_task

FAILED = "{}.failed.json"
KINDS = {"InputError": InputError, "WorkerDied": WorkerDied, "RuntimeError": RuntimeError}
"""Classes by the name in the file of a failed task; the process that waits for the tasks raises them."""
POLL_SECONDS = 5.0
GRACE_SECONDS = 60.0
"""How long a file may take to become visible on another machine."""


class TaskShare(PipelineStep):
    """The step of a datatrove pipeline that runs a rank's tasks: every `world_size`-th, from number `rank`.

    They run in the working folder of the process that made this object, since paths may be relative.
    """

    type = "LORIINI"
    name = "tasks"

    def __init__(self, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        super().__init__()
        self.tasks, self.parts, self.logs = tasks, parts, logs
        self.working_folder = Path.cwd()

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Run the rank's unfinished tasks. A failure is written to `logs`; then no rank begins another."""
        with chdir(self.working_folder):
            for task in self.tasks[rank::world_size]:
                if any(self.logs.glob(FAILED.format("*"))):
                    return
                if is_finished(task, self.parts):
                    continue
                try:
                    run_task(task, self.parts, no_progress)
                except Exception as error:
                    write_json(self.logs / FAILED.format(task.name), _described(task, error))
                    return


def _described(task: Task, error: Exception) -> tuple[str, str]:
    """An error as a key of KINDS and a message; the message for a bug is its traceback."""
    if isinstance(error, InputError):
        return "InputError", str(error)
    if is_system_error(error):
        what = f"{type(error).__name__}: {error}"
        return "WorkerDied", f"{task.name} failed on {socket.gethostname()}: {what}; rerun to continue"
    return "RuntimeError", f"{task.name} failed:\n{traceback.format_exc()}"


class SlurmJobs(SlurmPipelineExecutor):
    """datatrove's array of jobs: `launch_job` waits for it, and cancels it if the wait is interrupted."""

    def launch_job(self) -> None:
        try:
            super().launch_job()
        except subprocess.CalledProcessError as error:
            if not error.output:  # nothing was submitted; else a job failed
                raise
        except BaseException:
            subprocess.run(["scancel", f"--name={self.job_name}"], capture_output=True)
            raise

    def launch_merge_stats(self) -> None:
        """Do nothing: the tasks collect no statistics."""


class RayJobs(RayPipelineExecutor):
    """datatrove's Ray tasks, on the cluster at RAY_ADDRESS, or on this machine."""

    def run(self) -> None:
        import ray

        if not ray.is_initialized():
            ray.init(
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": WORKER_ENVIRONMENT},
            )
        super().run()


@dataclass(frozen=True)
class ClusterExecutor:
    """Runs tasks as up to `workers` jobs of a cluster, each with an equal share of them."""

    kind: type[SlurmJobs] | type[RayJobs]
    workers: int
    options: Mapping[str, Any]

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Run the tasks; raises a failed task's error as one of KINDS, and WorkerDied if a task is lost."""
        parts = parts.absolute()
        # A folder for this attempt alone: jobs of an attempt that was killed may still run, and fail.
        logs = parts / "logs" / f"{tasks[0].name}.{uuid4().hex}"
        logs.mkdir(parents=True)
        logger.disable("datatrove")
        left = list(tasks)

        def update() -> None:
            for task in [task for task in left if is_finished(task, parts)]:
                left.remove(task)
                advance(task.size)

        with repeated(POLL_SECONDS, update), environment_variables(WORKER_ENVIRONMENT):
            self._run(TaskShare(tasks, parts, logs), min(self.workers, len(tasks)))
        end = time.monotonic() + GRACE_SECONDS
        while True:
            update()
            for path in logs.glob(FAILED.format("*")):
                kind, message = json.loads(path.read_text())
                raise KINDS[kind](message)
            if not left:
                return
            if time.monotonic() > end:
                raise WorkerDied(f"{left[0].name} and {len(left) - 1} more tasks were lost; see {logs}")
            time.sleep(POLL_SECONDS)

    def _run(self, share: TaskShare, jobs: int) -> None:
        try:
            self.kind(**_arguments(self.kind, share.logs, jobs, share), **self.options).run()
        except (FileNotFoundError, subprocess.CalledProcessError, ConnectionError, ValueError) as error:
            raise InputError(
                f"the cluster takes no jobs ({shorten(str(error), 200)}); run this where sbatch submits "
                "jobs, or check RAY_ADDRESS"
            ) from error


def cluster_executor(name: str, workers: int, options: Sequence[str]) -> ClusterExecutor:
    """The executor `slurm` or `ray`; `options` are arguments of datatrove's executor, KEY=VALUE each.

    `sbatch_args.KEY=VALUE` is passed on to sbatch. InputError for an unknown argument.
    """
    kind = SlurmJobs if name == "slurm" else RayJobs
    parsed, sbatch_arguments = dict[str, Any](), dict[str, str]()
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key == "sbatch_args":
            raise InputError(f"executor option {option!r}: give KEY=VALUE, or sbatch_args.KEY=VALUE")
        if key.startswith("sbatch_args."):  # true is a flag: `--exclusive`
            sbatch_arguments[key.removeprefix("sbatch_args.")] = "" if value == "true" else value
        else:
            parsed[key] = value
            with suppress(ValueError):
                parsed[key] = json.loads(value)  # a number, true or false
    if name == "slurm":
        parsed["sbatch_args"] = {**sbatch_arguments, "wait": ""}
    try:
        signature(kind.__init__).bind(None, **_arguments(kind, Path(), 1), **parsed)
    except TypeError as error:
        raise InputError(f"executor {name!r}: --executor-options: {error}") from None
    return ClusterExecutor(kind, workers, parsed)


def _arguments(kind: type, logs: Path, jobs: int, share: TaskShare | None = None) -> dict[str, Any]:
    """The arguments of datatrove's executor that are set here, not by the user."""
    named = {"job_name": f"loriini-{logs.name}"} if kind is SlurmJobs else {}
    return {
        **named,
        "pipeline": [share],
        "tasks": jobs,
        "logging_dir": str(logs),
        "skip_completed": False,  # the tasks' own folders show what is finished
    }
