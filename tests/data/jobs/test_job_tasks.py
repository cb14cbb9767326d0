"""A task runs whole or not at all, only once, and with the same result in any executor."""

import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loriini.common.errors import InputError, WorkerDied
from loriini.common.progress import Advance
from loriini.data.jobs.artifact import build_artifact, parts_folder
from loriini.data.jobs.executors import make_executor
from loriini.data.jobs.processes import WORKER, ProcessExecutor, readable_elsewhere
from loriini.data.jobs.tasks import SERIAL, Executor, Task, concatenate_files, run_tasks, task_counts


def square(number: int, folder: Path, advance: Advance) -> dict[str, Any]:
    """Write a number's square, and add the number to the file `done`."""
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
    raise InputError("a.jsonl:7: no text; fix the line")


class Unreadable(Exception):
    """An error that no other process can read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return fail_to_read, ()


def fail_to_read(*_: object) -> Any:
    raise ValueError("cannot be read")


def raise_value_error(folder: Path, advance: Advance) -> dict[str, Any]:
    raise ValueError("not meant to be")


def fill_the_memory(folder: Path, advance: Advance) -> dict[str, Any]:
    raise MemoryError("Unable to allocate 9 GiB")


def report_environment(folder: Path, advance: Advance) -> dict[str, Any]:
    return {
        "torch": "torch" in sys.modules,
        "threads": os.environ["OMP_NUM_THREADS"],
        "worker": os.environ[WORKER],
    }


def squares(count: int) -> list[Task]:
    return [Task(f"square-{i}", partial(square, i), 1) for i in range(count)]


def build_with(folder: Path, tasks: list[Task], execute: Executor, settings: int = 0) -> list[dict[str, Any]]:
    """Build an artifact that joins the files of its tasks; returns their counts."""
    results: list[dict[str, Any]] = []

    def write(temporary: Path) -> dict[str, Any]:
        finished = run_tasks("squares", tasks, temporary, execute)
        results.extend(map(task_counts, finished))
        concatenate_files((output / "square" for output in finished), temporary / "squares")
        return {}

    build_artifact(folder, {"settings": settings}, {}, write)
    return results


@pytest.mark.parametrize("execute", [SERIAL, ProcessExecutor(2)], ids=str)
def test_results_are_in_order_with_any_executor(tmp_path: Path, execute: Executor) -> None:
    results = build_with(tmp_path / "stage", squares(5), execute)
    assert [result["number"] for result in results] == list(range(5))
    assert (tmp_path / "stage" / "squares").read_text() == "014916"
    assert sorted((tmp_path / "done").read_text().split()) == list("01234")
    others = {result["process"] for result in results} - {os.getpid()}
    assert bool(others) == (execute != SERIAL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "stage"]


def test_all_tasks_are_finished_before_their_results_are_read_one_at_a_time(tmp_path: Path) -> None:
    temporary = tmp_path / "stage.unfinished"
    parts_folder(temporary).mkdir()
    results = run_tasks("squares", squares(3), temporary, SERIAL)
    assert (tmp_path / "done").read_text() == "0 1 2 "
    assert task_counts(results[0])["number"] == 0
    (results[1] / "result.json").write_text('{"number": 7}')
    assert task_counts(results[1])["number"] == 7


FAILURES = {
    raise_input_error: (InputError, r"^a\.jsonl:7: no text; fix the line$"),
    raise_value_error: (ValueError, "not meant to be"),
}


@pytest.mark.parametrize("run", FAILURES)
def test_a_failure_is_raised_and_finished_tasks_are_kept(run: Any, tmp_path: Path) -> None:
    error, message = FAILURES[run]
    with pytest.raises(error, match=message):
        build_with(tmp_path / "stage", [*squares(2), Task("wrong", run)], SERIAL)
    assert not (tmp_path / "stage").exists()
    build_with(tmp_path / "stage", squares(3), SERIAL)
    assert (tmp_path / "done").read_text() == "0 1 2 "
    assert (tmp_path / "stage" / "squares").read_text() == "014"


@pytest.mark.parametrize(
    ("run", "error", "message"),
    [
        (raise_input_error, InputError, r"^a\.jsonl:7: no text; fix the line$"),
        (die, WorkerDied, "^a process at .* wrong to square-0 died .*rerun"),
    ],
)
def test_a_failure_in_another_process(run: Any, error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        build_with(tmp_path / "stage", [Task("wrong", run), *squares(1)], ProcessExecutor(2))
    assert not list(tmp_path.glob(".stage.*.parts/wrong"))
    build_with(tmp_path / "stage", squares(2), SERIAL)
    assert (tmp_path / "stage" / "squares").read_text() == "01"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("error", "sent", "message"),
    [
        (ValueError("not meant to be"), ValueError, "^not meant to be$"),
        (Unreadable("of a library"), RuntimeError, "^task failed:\n(.*\n)*.*Unreadable: of a library"),
    ],
)
def test_an_error_as_another_process_reads_it(error: Exception, sent: Any, message: str) -> None:
    found = readable_elsewhere(Task("task", fail_to_read), error)
    assert type(found) is sent
    assert re.search(message, str(found))


def test_a_worker_process_has_one_thread_and_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    tasks = [Task(f"report-{i}", report_environment) for i in range(2)]

    def write(temporary: Path) -> dict[str, Any]:
        return {"found": [*map(task_counts, run_tasks("report", tasks, temporary, ProcessExecutor(2)))]}

    found = build_artifact(tmp_path / "stage", {}, {}, write).counts["found"]
    assert all(report["worker"] in ("0", "1") for report in found)
    assert {(report["torch"], report["threads"]) for report in found} == {(False, "1")}
    assert "OMP_NUM_THREADS" not in os.environ


def test_finished_tasks_of_other_settings_are_removed(tmp_path: Path) -> None:
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


def test_executors_by_name() -> None:
    assert make_executor("local", 3) == ProcessExecutor(3)
    with pytest.raises(InputError, match="the local executor has none"):
        make_executor("local", 1, ["time=1"])
