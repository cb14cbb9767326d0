"""A task is done whole or not at all, not again, and the same wherever it is done."""

import errno
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loriini.errors import InputError, WorkerDied
from loriini.jobs.artifact import build_artifact, digest, parts_folder
from loriini.jobs.executors import make_executor
from loriini.jobs.processes import ProcessExecutor
from loriini.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks
from loriini.progress import Advance


def square(number: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write a number's square, and beside `folder` that it was done."""
    (folder / "square").write_text(str(number**2))
    with open(folder.parents[1] / "done", "a") as file:
        file.write(f"{number} ")
    advance(1)
    return {"number": number, "process": os.getpid()}


def die(folder: Path, advance: Advance) -> dict[str, Any]:
    (folder / "half").write_text("half")
    os.kill(os.getpid(), 9)
    return {}


def raise_input_error(folder: Path, advance: Advance) -> dict[str, Any]:
    raise InputError("a.jsonl:7: no text; mend the line")


def raise_value_error(folder: Path, advance: Advance) -> dict[str, Any]:
    raise ValueError("not meant to be")


def fill_the_disk(folder: Path, advance: Advance) -> dict[str, Any]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_the_disk_of_numpy(folder: Path, advance: Advance) -> dict[str, Any]:
    raise OSError("76800 requested and 22464 written")


def be_done_by_another(folder: Path, advance: Advance) -> dict[str, Any]:
    """Another job finishes the same task meanwhile."""
    other = folder.parent / "twice"
    other.mkdir()
    (other / "result.json").write_text('{"by": "another"}')
    return {"by": "us"}


def tell_surroundings(folder: Path, advance: Advance) -> dict[str, Any]:
    return {"model": "torch" in sys.modules, "threads": os.environ["OMP_NUM_THREADS"]}


def squares(count: int) -> list[Task]:
    return [Task(f"square-{i}", partial(square, i), 1) for i in range(count)]


def build_with(folder: Path, tasks: list[Task], execute: Executor, settings: int = 0) -> list[dict[str, Any]]:
    """A stage that joins what its tasks wrote; returns their counts."""
    results: list[dict[str, Any]] = []

    def write(temporary: Path) -> dict[str, Any]:
        results.extend(run_tasks("squares", tasks, temporary, execute))
        sources = (parts_folder(temporary) / task.name / "square" for task in tasks)
        concatenate_files(sources, temporary / "squares")
        return {}

    build_artifact(folder, {"settings": settings}, {}, write)
    return results


@pytest.mark.parametrize("execute", [SERIAL, ProcessExecutor(1), ProcessExecutor(2)], ids=str)
def test_results_are_in_order_wherever_they_are_made(tmp_path: Path, execute: Executor) -> None:
    results = build_with(tmp_path / "stage", squares(5), execute)
    assert [result["number"] for result in results] == list(range(5))
    assert (tmp_path / "stage" / "squares").read_text() == "014916"
    assert sorted((tmp_path / "done").read_text().split()) == list("01234")
    elsewhere = {result["process"] for result in results} - {os.getpid()}
    assert len(elsewhere) == (2 if execute == ProcessExecutor(2) else 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "stage"]


@pytest.mark.parametrize("execute", [SERIAL, ProcessExecutor(2)], ids=str)
@pytest.mark.parametrize(
    ("run", "error", "told"),
    [
        (raise_input_error, InputError, r"^a\.jsonl:7: no text; mend the line$"),
        (raise_value_error, (ValueError, RuntimeError), "not meant to be"),
        (fill_the_disk_of_numpy, InputError, "the disk is full .*; make room and rerun, what is finished"),
        (
            fill_the_disk,
            InputError,
            r"the disk is full \(or a quota.*; make room and rerun, what is finished is kept$",
        ),
    ],
)
def test_a_failure_is_told_and_what_is_finished_is_kept(
    tmp_path: Path, execute: Executor, run: Any, error: Any, told: str
) -> None:
    tasks = squares(3)
    build_with(tmp_path / "other", tasks, execute)
    with pytest.raises(error, match=told) as caught:
        build_with(tmp_path / "stage", [*tasks, Task("wrong", run)], execute)
    if execute != SERIAL and error != InputError:
        assert "wrong failed" in str(caught.value)
    assert not (tmp_path / "stage").exists()
    finished = [task for task in tasks if list(tmp_path.glob(f".stage.*.parts/{task.name}"))]
    assert len(finished) == 3 or execute != SERIAL
    (tmp_path / "done").unlink()
    build_with(tmp_path / "stage", tasks, execute)
    done = (tmp_path / "done").read_text().split() if (tmp_path / "done").exists() else []
    assert len(done) == 3 - len(finished)
    assert (tmp_path / "stage" / "squares").read_text() == "014"


def test_a_process_that_dies_is_told_with_its_task(tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match=r"^the process that did killer died \(exit code -9; .*rerun"):
        build_with(tmp_path / "stage", [Task("killer", die), *squares(1)], ProcessExecutor(2))
    assert not list(tmp_path.glob(".stage.*.parts/killer"))
    build_with(tmp_path / "stage", squares(2), ProcessExecutor(2))
    assert not list(tmp_path.glob(".*"))


def test_a_task_that_another_job_finished_meanwhile_is_done(tmp_path: Path) -> None:
    def write(temporary: Path) -> dict[str, Any]:
        (counts,) = run_tasks("twice", [Task("twice", be_done_by_another)], temporary, SERIAL)
        assert [path.name for path in parts_folder(temporary).glob("*wice*")] == ["twice"]
        return counts

    assert build_artifact(tmp_path / "stage", {}, {}, write).counts == {"by": "another"}


def test_a_process_has_no_model_and_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tasks = [Task(f"tell-{i}", tell_surroundings) for i in range(2)]

    def write(temporary: Path) -> dict[str, Any]:
        return {"told": run_tasks("tell", tasks, temporary, ProcessExecutor(2))}

    told = build_artifact(tmp_path / "stage", {}, {}, write).counts["told"]
    assert told == [{"model": False, "threads": "1"}] * 2
    assert "OMP_NUM_THREADS" not in os.environ


def test_parts_of_other_settings_are_dropped(tmp_path: Path) -> None:
    tasks = [*squares(2), Task("wrong", raise_input_error)]
    with pytest.raises(InputError):
        build_with(tmp_path / "stage", tasks, SERIAL, settings=1)
    (of_others,) = tmp_path.glob(".stage.*.parts")
    with pytest.raises(InputError):
        build_with(tmp_path / "stage", tasks, SERIAL, settings=2)
    (ours,) = tmp_path.glob(".stage.*.parts")
    assert ours != of_others  # so that a job of other settings that is left does not write here
    build_with(tmp_path / "stage", squares(2), SERIAL, settings=2)
    assert (tmp_path / "done").read_text() == "0 1 0 1 "


def test_parts_without_their_claim_are_nobodys(tmp_path: Path) -> None:
    whose = digest({"settings": {"settings": 0}, "inputs": {}})
    parts = tmp_path / f".stage.{whose}.parts" / "square-0"
    parts.mkdir(parents=True)
    (parts / "result.json").write_text(json.dumps({"number": 7}))
    results = build_with(tmp_path / "stage", squares(1), SERIAL)
    assert results[0]["number"] == 0


def test_executors_by_name() -> None:
    assert make_executor("local", 3) == ProcessExecutor(3)
    with pytest.raises(InputError, match="'cloud' is unknown; choose one of: local, slurm, ray"):
        make_executor("cloud")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the local executor has none"):
        make_executor("local", 1, ["time=1"])
