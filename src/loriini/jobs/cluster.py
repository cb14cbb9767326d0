"""Tasks on a Slurm or Ray cluster, by datatrove's executors (the extras `loriini[scale]`, `loriini[ray]`).

Every machine must see the corpus's folder under the same path. The process that was started stays: it hands
out a stage's tasks, waits until they are done, joins what they made and goes on with the next stage.
"""

import json
import logging
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from threading import Event, Thread
from typing import Any

from datatrove.executor.base import PipelineExecutor
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from loguru import logger

from loriini.atomic import write_json
from loriini.errors import InputError, WorkerDied
from loriini.jobs.processes import WORKER_ENVIRONMENT, environment_variables
from loriini.jobs.tasks import Task, is_finished, run_task
from loriini.progress import Advance

OURS = ("self", "pipeline", "tasks", "workers", "logging_dir", "skip_completed", "depends", "depends_job_id")
"""Arguments of datatrove's executors that are not the user's."""
BOOLEANS = {"true": True, "false": False}
FAILED = "{}.failed.json"
POLL_SECONDS = 5.0
GRACE_SECONDS = 60.0
"""How long a file may take to be seen on another machine."""


class TaskShare(PipelineStep):
    """A rank's share of the tasks: every `world_size`-th."""

    type = "LORIINI"
    name = "tasks"

    def __init__(self, tasks: Sequence[Task], parts: Path) -> None:
        super().__init__()
        self.tasks, self.parts = tasks, parts

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Do the rank's tasks that are not done; the first that fails is written down and ends it."""
        for task in self.tasks[rank::world_size]:
            if is_finished(self.parts, task):
                continue
            try:
                run_task(task, self.parts, _in_silence)
            except Exception as error:
                wrong = isinstance(error, InputError)
                told = str(error) if wrong else traceback.format_exc()
                write_json(self.parts / FAILED.format(task.name), {"wrong_input": wrong, "told": told})
                return


@dataclass(frozen=True)
class ClusterExecutor:
    """Does tasks as `workers` jobs of a cluster, each with its share of them."""

    run: Callable[["ClusterExecutor", Sequence[Task], Path, Path], None]
    workers: int
    options: Mapping[str, Any]

    def __call__(self, tasks: Sequence[Task], parts: Path, advance: Advance) -> None:
        """Do the tasks; raises what one of them raised, and WorkerDied when one is lost."""
        parts = parts.absolute()
        logs = parts / "logs" / tasks[0].name
        for task in tasks:
            (parts / FAILED.format(task.name)).unlink(missing_ok=True)
        logger.disable("datatrove")
        with _watched(tasks, parts, advance):
            self.run(self, tasks, parts, logs)
        _check_failures(tasks, parts)
        if lost := [task.name for task in tasks if not is_finished(parts, task)]:
            raise WorkerDied(f"{len(lost)} tasks were lost, {lost[0]} the first; the jobs' logs: {logs}")

    def jobs(self, executor: type[PipelineExecutor], tasks: Sequence[Task], parts: Path, logs: Path) -> Any:
        """datatrove's executor of the tasks."""
        return executor(
            pipeline=[TaskShare(tasks, parts)],
            tasks=min(self.workers, len(tasks)),
            logging_dir=str(logs),
            skip_completed=False,  # what is done is told by the tasks' own folders
            **self.options,
        )


def slurm_executor(workers: int, options: Sequence[str]) -> ClusterExecutor:
    """Jobs of a Slurm array. `options` must name its `partition` and its `time` limit."""
    parsed = _parse(options, SlurmPipelineExecutor)
    for name in ("partition", "time"):
        if name not in parsed:
            raise InputError(f"executor 'slurm' needs --executor-options {name}=…")
    return ClusterExecutor(_run_on_slurm, workers, parsed)


def ray_executor(workers: int, options: Sequence[str]) -> ClusterExecutor:
    """Ray's workers: of the cluster that RAY_ADDRESS names, or of this machine."""
    return ClusterExecutor(_run_on_ray, workers, _parse(options, RayPipelineExecutor))


class _Slurm(SlurmPipelineExecutor):
    """Without the job that would sum up datatrove's own statistics."""

    def launch_merge_stats(self) -> None:
        """There is nothing to merge."""


def _run_on_slurm(cluster: ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
    """Submit an array of jobs and wait for it; what is left is cancelled when we stop before its end."""
    jobs = cluster.jobs(_Slurm, tasks, parts, logs)
    try:
        with environment_variables(WORKER_ENVIRONMENT):  # which sbatch hands on
            jobs.run()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"executor 'slurm': sbatch failed ({error}); run it where jobs are submitted"
        ) from error
    try:
        gone_since = None
        while not all(is_finished(parts, task) for task in tasks):
            _check_failures(tasks, parts)
            queue = subprocess.run(["squeue", "-h", "-j", jobs.job_id], capture_output=True, text=True)
            gone_since = (gone_since or time.monotonic()) if _is_gone(queue) else None
            if gone_since and time.monotonic() - gone_since > GRACE_SECONDS:
                _cancel(jobs.job_id)  # should one be left all the same
                return
            time.sleep(POLL_SECONDS)
    except BaseException:
        _cancel(jobs.job_id)
        raise


def _cancel(job: str) -> None:
    subprocess.run(["scancel", job], capture_output=True)


def _is_gone(queue: "subprocess.CompletedProcess[str]") -> bool:
    """Whether squeue knows of no such job any more; a squeue that fails for another reason tells nothing."""
    if queue.returncode:
        return "invalid job id" in queue.stderr.lower()
    return not queue.stdout.strip()


def _run_on_ray(cluster: ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
    import ray

    if not ray.is_initialized():
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": WORKER_ENVIRONMENT},
        )
    cluster.jobs(RayPipelineExecutor, tasks, parts, logs).run()


def _check_failures(tasks: Sequence[Task], parts: Path) -> None:
    """Raise the first task's failure, if one was written down."""
    for task in tasks:
        path = parts / FAILED.format(task.name)
        if path.exists():
            failure = json.loads(path.read_text())
            if failure["wrong_input"]:
                raise InputError(failure["told"])
            raise RuntimeError(f"{task.name} failed:\n{failure['told']}")


@contextmanager
def _watched(tasks: Sequence[Task], parts: Path, advance: Advance) -> Iterator[None]:
    """Move the progress bar when a task is done."""
    left = list(tasks)
    over = Event()

    def look() -> None:
        done = [task for task in left if is_finished(parts, task)]
        for task in done:
            left.remove(task)
        advance(sum(task.size for task in done))

    def watch() -> None:
        while not over.wait(POLL_SECONDS):
            look()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        look()


def _parse(options: Sequence[str], executor: type[PipelineExecutor]) -> dict[str, Any]:
    """`KEY=VALUE` as the executor's arguments; `sbatch_args.KEY=VALUE` goes into that dictionary."""
    known = [name for name in signature(executor.__init__).parameters if name not in OURS]
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        name, _, inner = key.partition(".")
        if not equals or name not in known:
            raise InputError(f"executor option {option!r}: give KEY=VALUE, KEY one of: {', '.join(known)}")
        typed = int(value) if value.isdecimal() else BOOLEANS.get(value.lower(), value)
        if inner:
            parsed.setdefault(name, {})[inner] = typed
        else:
            parsed[name] = typed
    return parsed


def _in_silence(count: int = 1, note: str = "") -> None:
    """Progress that nobody sees."""
