"""Slurm's jobs on stand-ins of its commands, and Ray on this machine."""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jobs.test_tasks import build_with, raise_input_error, raise_value_error, squares

from loriini.common.errors import InputError, WorkerDied
from loriini.common.progress import Advance, no_progress
from loriini.data.jobs import executors
from loriini.data.jobs.executors import make_executor
from loriini.data.jobs.processes import WORKER_ENVIRONMENT
from loriini.data.jobs.tasks import Task, result_of

pytest.importorskip("datatrove", reason="the extra loriini[scale] is not installed")
from loriini.data.jobs import cluster

OPTIONS = ("time=00:10:00", "partition=cpu", "mem_per_cpu_gb=4", "sbatch_args.account=lories")
COMMANDS = {
    # every job of the array, one after the other, as Slurm would start them
    "sbatch": """
script=${@: -1}
cp "$script" "$SLURM_STAND_IN/script"
last=$(sed -n 's/^#SBATCH --array=0-//p' "$script")
for rank in $(seq 0 "$last"); do
  SLURM_ARRAY_TASK_ID=$rank SLURM_NODELIST=here bash "$script" >> "$SLURM_STAND_IN/log" 2>&1
done
echo "Submitted batch job 7"
""",
    "srun": 'exec "$(dirname "$0")/launch_pickled_pipeline" "${@: -1}"\n',
    "launch_pickled_pipeline": f'exec {sys.executable} -m datatrove.tools.launch_pickled_pipeline "$@"\n',
    "scontrol": "echo here\n",
    "squeue": "",
    "scancel": 'echo "$@" >> "$SLURM_STAND_IN/cancelled"\n',
}


IMPORTABLE = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
"""The path on which jobs find the modules of tests."""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with stand-ins of Slurm's commands, which write what they are given into it."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, body in COMMANDS.items():
        (folder / name).write_text("#!/bin/bash\n" + body)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    monkeypatch.setenv("SLURM_STAND_IN", str(folder))
    monkeypatch.setattr("loriini.data.jobs.cluster.POLL_SECONDS", 0.1)
    monkeypatch.setattr("loriini.data.jobs.cluster.GRACE_SECONDS", 0.1)
    return folder


def test_slurm_runs_the_tasks_in_an_array_of_jobs(tmp_path: Path, slurm: Path) -> None:
    results = build_with(tmp_path / "stage", squares(5), make_executor("slurm", 2, OPTIONS))
    assert (tmp_path / "stage" / "squares").read_text() == "014916"
    assert len({result["process"] for result in results} - {os.getpid()}) == 2
    script = (slurm / "script").read_text()
    for line in ("time=00:10:00", "partition=cpu", "mem-per-cpu=4G", "account=lories", "array=0-1"):
        assert f"#SBATCH --{line}\n" in script


def test_a_failure_on_the_cluster_is_raised_and_cancels_the_other_jobs(tmp_path: Path, slurm: Path) -> None:
    """The jobs themselves are run above; here they run in this process, in the place of srun."""
    tasks = [*squares(2), Task("wrong", raise_input_error), *squares(4)[3:]]

    def run(executor: cluster.ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        cluster.TaskShare(tasks, parts, logs).run(None)
        (slurm / "sbatch").write_text("#!/bin/bash\necho Submitted batch job 7\n")
        cluster._run_on_slurm(executor, tasks, parts, logs)

    execute = make_executor("slurm", 1, OPTIONS)
    with pytest.raises(InputError, match=r"^a\.jsonl:7: no text; fix the line$"):
        build_with(tmp_path / "stage", tasks, replace(execute, run=run))
    assert (slurm / "cancelled").read_text() == "7\n"
    assert (tmp_path / "done").read_text() == "0 1 "


def fail_to_write(folder: Path, advance: Advance) -> dict[str, Any]:
    raise OSError(errno.EIO, "Input/output error")


def use_too_much(folder: Path, advance: Advance) -> dict[str, Any]:
    raise MemoryError("a bit more")


@pytest.mark.parametrize(
    ("run", "message"),
    [(fail_to_write, r"OSError: \[Errno 5\] Input/output error"), (use_too_much, "MemoryError: a bit more")],
)
def test_an_error_of_a_machine_names_it_in_one_line(tmp_path: Path, run: Any, message: str) -> None:
    """And the other jobs take no further task."""
    tasks = [Task("failing", run), *squares(3)]

    def run_all(executor: cluster.ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        for rank in range(2):
            cluster.TaskShare(tasks, parts, logs).run(None, rank, 2)

    execute = replace(make_executor("slurm", 2, OPTIONS), run=run_all)
    with pytest.raises(WorkerDied, match=f"^failing failed on {socket.gethostname()}: {message}; rerun"):
        build_with(tmp_path / "stage", tasks, execute)
    assert not list((tmp_path).rglob("square-*"))


def read_relative(folder: Path, advance: Advance) -> dict[str, Any]:
    return {"read": Path("input.txt").read_text()}


@pytest.mark.parametrize("is_there", [True, False])
def test_relative_paths_are_those_of_the_folder_where_it_was_started(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's workers start in folders of their own; one without the user's folder stays in its own."""
    user, worker = tmp_path / "user", tmp_path / "worker"
    for folder in (user, worker):
        folder.mkdir()
        (folder / "input.txt").write_text(folder.name)

    def run(executor: cluster.ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        share = cluster.TaskShare(tasks, parts, logs)
        if not is_there:
            share.working_folder = tmp_path / "absent"
        with chdir(worker):
            share.run(None)
            assert Path.cwd() == worker

    monkeypatch.chdir(user)
    execute = replace(make_executor("slurm", 1, OPTIONS), run=run)
    task = Task("task", read_relative)
    execute([task], Path("parts"), no_progress)
    assert result_of(task, user / "parts") == {"read": "user" if is_there else "worker"}


def test_a_job_of_a_killed_attempt_may_fail_during_the_next(tmp_path: Path) -> None:
    killed: list[tuple[Path, Path]] = []

    def run(executor: cluster.ClusterExecutor, tasks: Sequence[Task], parts: Path, logs: Path) -> None:
        if not killed:
            killed.append((parts, logs))
            raise KeyboardInterrupt
        cluster.TaskShare([Task("square-0", raise_value_error)], *killed[0]).run(None)
        cluster.TaskShare(tasks, parts, logs).run(None)

    execute = replace(make_executor("slurm", 1, OPTIONS), run=run)
    with pytest.raises(KeyboardInterrupt):
        build_with(tmp_path / "stage", squares(2), execute)
    build_with(tmp_path / "stage", squares(2), execute)
    assert (tmp_path / "stage" / "squares").read_text() == "01"


def test_all_arrays_are_watched_and_cancelled(tmp_path: Path, slurm: Path) -> None:
    """datatrove submits several where one would have more than `max_array_size` jobs."""
    (slurm / "sbatch").write_text(
        "#!/bin/bash\n"
        'echo x >> "$SLURM_STAND_IN/submitted"\n'
        'echo "Submitted batch job $(wc -l < "$SLURM_STAND_IN/submitted")"\n'
    )
    (slurm / "squeue").write_text('#!/bin/bash\necho "$@" >> "$SLURM_STAND_IN/watched"\n')
    execute = make_executor("slurm", 5, (*OPTIONS, "max_array_size=2"))
    with pytest.raises(RuntimeError, match="5 tasks were lost"):
        build_with(tmp_path / "stage", squares(5), execute)
    assert (slurm / "watched").read_text().splitlines()[0] == "-h -j 1,2,3"
    assert (slurm / "cancelled").read_text() == "1 2 3\n"


def test_arrays_submitted_before_a_failure_are_cancelled(tmp_path: Path, slurm: Path) -> None:
    (slurm / "sbatch").write_text(
        "#!/bin/bash\n"
        '[ -e "$SLURM_STAND_IN/submitted" ] && exit 1\n'
        'touch "$SLURM_STAND_IN/submitted"; echo Submitted batch job 7\n'
    )
    with pytest.raises(InputError, match="sbatch failed"):
        build_with(tmp_path / "stage", squares(3), make_executor("slurm", 3, (*OPTIONS, "max_array_size=2")))
    assert (slurm / "cancelled").read_text() == "7\n"


def test_slurm_jobs_that_vanish_are_reported(tmp_path: Path, slurm: Path) -> None:
    (slurm / "srun").write_text("#!/bin/bash\n")
    with pytest.raises(RuntimeError, match=r"2 tasks were lost, square-0 the first; the jobs' logs: .*stage"):
        build_with(tmp_path / "stage", squares(2), make_executor("slurm", 2, OPTIONS))
    assert (slurm / "cancelled").read_text() == "7\n"


@pytest.mark.parametrize(
    ("code", "out", "err", "gone"),
    [
        (0, "7 cpu job R", "", False),
        (0, "", "", True),
        (1, "", "slurm_load_jobs error: Invalid job id specified", True),
        (1, "", "slurm_load_jobs error: Unable to contact slurm controller", False),
    ],
)
def test_a_job_is_gone_only_when_squeue_says_so(code: int, out: str, err: str, gone: bool) -> None:
    assert cluster._is_gone(subprocess.CompletedProcess([], code, out, err)) is gone


def test_options_are_parsed_to_their_types() -> None:
    options = (*OPTIONS, "requeue=false", "cpus_per_task=2", "mem_per_cpu_gb=1.5")
    found = cluster.slurm_executor(1, options).options
    assert (found["requeue"], found["cpus_per_task"], found["time"]) == (False, 2, "00:10:00")
    assert found["mem_per_cpu_gb"] == 1.5


def test_options_of_sbatch_are_passed_on_as_they_are(tmp_path: Path, slurm: Path) -> None:
    (slurm / "srun").write_text("#!/bin/bash\n")
    given = ("sbatch_args.account=00123", "sbatch_args.nice=0", "sbatch_args.exclusive=true")
    with pytest.raises(RuntimeError, match="1 tasks were lost"):
        build_with(tmp_path / "stage", squares(1), make_executor("slurm", 1, (*OPTIONS, *given)))
    script = (slurm / "script").read_text()
    for line in ("account=00123", "nice=0", "exclusive"):
        assert f"#SBATCH --{line}\n" in script


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "needs --executor-options partition="),
        (("partition=cpu",), "needs --executor-options time="),
        (("colour=red",), "executor option 'colour=red': give KEY=VALUE, KEY one of: .*time"),
        (("time",), "executor option 'time': give KEY=VALUE"),
        (("sbatch_args=x",), "executor option 'sbatch_args=x': give .*sbatch_args.KEY"),
        (("sbatch_args.a=1", "sbatch_args=x"), "executor option 'sbatch_args=x': give"),
        (("srun_args.=x",), "executor option 'srun_args.=x': give"),
        (("requeue_signals=SIGUSR1",), "executor option 'requeue_signals=SIGUSR1': give KEY=VALUE"),
        (("partition.x=cpu",), "executor option 'partition.x=cpu': give"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_executor("slurm", 1, options)


def test_missing_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="sbatch failed"):
        build_with(tmp_path / "stage", squares(1), make_executor("slurm", 1, OPTIONS))


@pytest.mark.parametrize(("where", "extra"), [("slurm", "scale"), ("ray", "ray")])
def test_a_missing_extra_is_named(where: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"pip install 'loriini\[{extra}\]'"):
        make_executor(where)  # type: ignore[arg-type]


def test_ray_gets_the_options_and_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Stub:
        def __init__(self, pipeline: list, tasks: int, **options: Any) -> None:
            self.share, self.tasks = pipeline[0], tasks
            given.update(options)

        def run(self) -> None:
            for rank in range(self.tasks):
                self.share.run(None, rank, self.tasks)

    started: dict[str, Any] = {}
    ray = SimpleNamespace(
        is_initialized=lambda: bool(started), init=lambda **options: started.update(options)
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(executors, "find_spec", lambda name: True)
    execute = make_executor("ray", 2, ["mem_per_cpu_gb=1"])
    monkeypatch.setattr(cluster, "RayPipelineExecutor", Stub)
    build_with(tmp_path / "stage", squares(3), execute)
    assert (tmp_path / "stage" / "squares").read_text() == "014"
    assert (given["mem_per_cpu_gb"], given["skip_completed"]) == (1, False)
    assert started["runtime_env"] == {"env_vars": WORKER_ENVIRONMENT}


@pytest.mark.parametrize("error", [ConnectionError("no Ray there"), ValueError("no Ray there")])
def test_a_ray_cluster_that_cannot_be_joined_is_reported(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: object) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=refuse))
    monkeypatch.setattr(executors, "find_spec", lambda name: True)
    with pytest.raises(InputError, match=r"executor 'ray': .*\(no Ray there\); check RAY_ADDRESS"):
        build_with(tmp_path / "stage", squares(1), make_executor("ray", 1))


@pytest.mark.drill
@pytest.mark.filterwarnings("ignore:placement_group:DeprecationWarning")  # datatrove's
def test_ray_runs_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="the extra loriini[ray] is not installed")
    monkeypatch.setenv("PYTHONPATH", IMPORTABLE)
    handler = signal.getsignal(signal.SIGTERM)  # Ray replaces it
    try:
        results = build_with(tmp_path / "stage", squares(3), make_executor("ray", 2, ["mem_per_cpu_gb=1"]))
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)
    assert (tmp_path / "stage" / "squares").read_text() == "014"
    assert os.getpid() not in {result["process"] for result in results}
