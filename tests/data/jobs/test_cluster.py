"""Slurm's jobs on stand-ins of its commands, and Ray on this machine."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data.jobs.test_job_tasks import (
    build_with,
    fill_the_memory,
    raise_input_error,
    raise_value_error,
    squares,
)
from loriini.common.errors import InputError, WorkerDied
from loriini.common.progress import Advance, no_progress
from loriini.data.jobs import executors
from loriini.data.jobs.executors import make_executor
from loriini.data.jobs.processes import WORKER_ENVIRONMENT
from loriini.data.jobs.tasks import RESULT, Executor, Task

pytest.importorskip("datatrove", reason="the extra loriini[scale] is not installed")
from loriini.data.jobs import cluster

OPTIONS = ("time=00:10:00", "partition=cpu", "mem_per_cpu_gb=4", "sbatch_args.account=lories")
COMMANDS = {
    # every job of the array, one after the other, as `sbatch --wait`
    "sbatch": """
script=${@: -1}
cp "$script" "$SLURM_STAND_IN/script"
last=$(sed -n 's/^#SBATCH --array=0-//p' "$script")
echo "Submitted batch job 7"
for rank in $(seq 0 "$last"); do
  SLURM_ARRAY_TASK_ID=$rank SLURM_NODELIST=here bash "$script" >> "$SLURM_STAND_IN/log" 2>&1 || exit 1
done
""",
    "srun": 'exec "$(dirname "$0")/launch_pickled_pipeline" "${@: -1}"\n',
    "launch_pickled_pipeline": f'exec {sys.executable} -m datatrove.tools.launch_pickled_pipeline "$@"\n',
    "scontrol": "echo here\n",
    "scancel": 'echo "$@" >> "$SLURM_STAND_IN/cancelled"\n',
}
IMPORTABLE = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
"""The path on which jobs find the modules of tests."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(cluster, "GRACE_SECONDS", 0.1)


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
    return folder


def in_this_process(monkeypatch: pytest.MonkeyPatch, ranks: Callable[[cluster.TaskShare], None]) -> Executor:
    """An executor whose jobs are run by `ranks`, in the place of datatrove."""
    monkeypatch.setattr(cluster.SlurmJobs, "run", lambda jobs: ranks(jobs.pipeline[0]))
    return make_executor("slurm", 2, OPTIONS)


def test_slurm_runs_the_tasks_in_an_array_of_jobs(tmp_path: Path, slurm: Path) -> None:
    given = ("sbatch_args.nice=0", "sbatch_args.exclusive=true")
    results = build_with(tmp_path / "stage", squares(5), make_executor("slurm", 2, (*OPTIONS, *given)))
    assert (tmp_path / "stage" / "squares").read_text() == "014916"
    assert len({result["process"] for result in results} - {os.getpid()}) == 2
    script = (slurm / "script").read_text()
    lines = ("time=00:10:00", "partition=cpu", "mem-per-cpu=4G", "account=lories", "array=0-1", "nice=0")
    for line in (*lines, "exclusive", "wait"):
        assert f"#SBATCH --{line}\n" in script
    assert not (slurm / "cancelled").exists()


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (raise_input_error, InputError, r"^a\.jsonl:7: no text; fix the line$"),
        (fill_the_memory, WorkerDied, "^wrong failed on .*: MemoryError: Unable to allocate 9 GiB; rerun"),
        (raise_value_error, RuntimeError, "^wrong failed:\nTraceback(.*\n)*.*not meant to be"),
    ],
)
def test_a_failure_on_the_cluster_is_raised_and_no_further_task_begun(
    run: Any, error: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [*squares(2), Task("wrong", run), *squares(4)[3:]]
    execute = in_this_process(monkeypatch, lambda share: share.run(None))
    with pytest.raises(error, match=message):
        build_with(tmp_path / "stage", tasks, execute)
    assert (tmp_path / "done").read_text() == "0 1 "


@pytest.mark.parametrize(
    ("after", "error"),
    [("exit 1", WorkerDied), ("sleep 0.2; kill -INT $PPID; exec sleep 9", KeyboardInterrupt)],
)
def test_jobs_that_are_lost_or_no_longer_waited_for(
    after: str, error: Any, tmp_path: Path, slurm: Path
) -> None:
    (slurm / "sbatch").write_text(f"#!/bin/bash\necho Submitted batch job 7\n{after}\n")
    with pytest.raises(error):
        build_with(tmp_path / "stage", squares(1), make_executor("slurm", 1, OPTIONS))
    assert (slurm / "cancelled").exists() == (error is KeyboardInterrupt)


def read_relative(folder: Path, advance: Advance) -> dict[str, Any]:
    return {"read": Path("input.txt").read_text()}


def test_relative_paths_are_those_of_the_folder_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's workers start in folders of their own."""
    user, worker = tmp_path / "user", tmp_path / "worker"
    for folder in (user, worker):
        folder.mkdir()
        (folder / "input.txt").write_text(folder.name)

    def run(share: cluster.TaskShare) -> None:
        with chdir(worker):
            share.run(None)
            assert Path.cwd() == worker

    monkeypatch.chdir(user)
    task = Task("task", read_relative)
    in_this_process(monkeypatch, run)([task], Path("parts"), no_progress)
    assert json.loads((user / "parts" / task.name / RESULT).read_text()) == {"read": "user"}


def test_options_are_parsed_to_their_types() -> None:
    found = cluster.cluster_executor("slurm", 1, (*OPTIONS, "requeue=false", "qos=007")).options
    assert (found["requeue"], found["mem_per_cpu_gb"]) == (False, 4)
    assert (found["time"], found["qos"]) == ("00:10:00", "007")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("partition=cpu",), "time"),
        ((*OPTIONS, "colour=red"), "colour"),
        (("time",), "'time'"),
        (("sbatch_args=x",), "'sbatch_args=x'"),
        ((*OPTIONS, "colour.red=x"), "colour.red"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], named: str) -> None:
    with pytest.raises(InputError, match=named):
        make_executor("slurm", 1, options)


@pytest.mark.parametrize(("where", "extra"), [("slurm", "scale"), ("ray", "ray")])
def test_a_missing_extra_is_named(where: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"loriini\[{extra}\]"):
        make_executor(where)  # type: ignore[arg-type]


def stand_in_ray(monkeypatch: pytest.MonkeyPatch, init: Callable[..., Any]) -> Executor:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    monkeypatch.setattr(executors, "find_spec", lambda name: True)
    return make_executor("ray", 2, ["mem_per_cpu_gb=1"])


def test_ray_gets_the_options_and_all_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(jobs: Any) -> None:
        assert (jobs.mem_per_cpu_gb, jobs.skip_completed) == (1, False)
        for rank in range(jobs.tasks):
            jobs.pipeline[0].run(None, rank, jobs.tasks)

    started: dict[str, Any] = {}
    monkeypatch.setattr(cluster.RayPipelineExecutor, "run", run)
    execute = stand_in_ray(monkeypatch, lambda **options: started.update(options))
    build_with(tmp_path / "stage", squares(3), execute)
    assert (tmp_path / "stage" / "squares").read_text() == "014"
    assert started["runtime_env"] == {"env_vars": WORKER_ENVIRONMENT}


def test_a_ray_cluster_that_cannot_be_joined_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**options: object) -> None:
        raise ConnectionError("no Ray there")

    with pytest.raises(InputError, match="RAY_ADDRESS"):
        build_with(tmp_path / "stage", squares(1), stand_in_ray(monkeypatch, refuse))


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
