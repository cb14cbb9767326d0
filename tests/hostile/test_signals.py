"""A signal ends `prepare` with code 130 and without orphans, and a power loss takes back nothing finished."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cli.conftest import write_documents
from loriini.common.atomic import write_json
from loriini.common.signals import ending_signals
from loriini.data.jobs.artifact import build_artifact
from loriini.data.jobs.tasks import Task, run_tasks

MARK = "LORIINI_TEST_MARK"
SECONDS = 120
MANY_TASKS = """
import sys
from data.prepare.small import SMALL
from loriini.__main__ import main
for (module, name), value in SMALL.items():
    setattr(module, name, value)
main(sys.argv[1:])
"""


def marked(mark: str) -> list[str]:
    """The command lines of the processes that have the mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            pass
    return found


def wait_until(condition: Any, process: Any = None) -> None:
    """Wait while the process, if given, runs."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        assert not process or process.poll() is None, process.stderr.read()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "group", "moment"),
    [
        pytest.param(signal.SIGHUP, True, 2, id="hang-up of the terminal"),
        *(
            pytest.param(number, group, moment, marks=pytest.mark.drill)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
            for group in (False, True)
            for moment in range(4)
            if (number, group, moment) != (signal.SIGHUP, True, 2)
        ),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are listed in Linux's /proc")
def test_prepare_ends_with_its_workers(tmp_path: Path, number: int, group: bool, moment: int) -> None:
    """Moments: the folder is made; workers start; they have started; a stage is done."""
    for name in "abc":
        write_documents(tmp_path / f"{name}.jsonl", 1000)
    mark = uuid4().hex
    documents = [str(tmp_path / f"{name}.jsonl") for name in "abc"]
    command = [sys.executable, "-c", MANY_TASKS, "prepare", "c", "--documents", *documents]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path), "--workers", "3", "--tokenizer", "bpe:400"],
        env={**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run under nohup
    )
    out = tmp_path / "c"
    wait_until(out.exists, process)
    if moment == 1:
        wait_until(lambda: len(marked(mark)) >= 2, process)
    elif moment == 2:
        wait_until(lambda: len(marked(mark)) >= 4, process)
        time.sleep(0.5)
    elif moment == 3:
        wait_until((out / "documents").exists, process)
    (os.killpg if group else os.kill)(process.pid, number)
    error = process.communicate(timeout=SECONDS)[1].decode()
    wait_until(lambda: not marked(mark))
    if number != signal.SIGKILL:
        assert process.returncode == 130, error
        assert "interrupted; run the same command again" in error
        assert "Traceback" not in error


def test_signals_that_are_ignored_or_handled_stay_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with ending_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def written_after_power_loss(events: list[tuple[str, str]]) -> list[str]:
    """Renames whose files or folder entries were not synced before, or whose target's folder not after."""
    wrong = []
    for i, (kind, paths) in enumerate(events):
        if kind == "replace":
            source, target, held = paths.split("\n", 2)
            if Path(target).name.startswith("."):  # what is left of an attempt is removed
                continue
            synced = {path for what, path in events[:i] if what == "fsync"}
            wrong += [path for path in held.split("\n") if path not in synced]
            later = [path for what, path in events[i + 1 :] if what == "fsync"]
            wrong += [] if str(Path(target).parent) in later else [target]
            del source
    return wrong


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="paths of descriptors are Linux's")
def test_every_rename_of_an_artifact_follows_the_syncs_of_all_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        events.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def replace(source: Path, target: Path) -> None:
        held = [source, *Path(source).rglob("*")] if Path(source).is_dir() else [source]
        events.append(("replace", "\n".join(map(str, [source, target, *held]))))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)

    def task(folder: Path, advance: Any) -> dict[str, Any]:
        (folder / "part").write_bytes(b"x")
        return {}

    def write(folder: Path) -> dict[str, Any]:
        from loriini.data.jobs.tasks import SERIAL

        run_tasks("t", [Task("one", task), Task("two", task)], folder, SERIAL)
        (folder / "inner").mkdir()
        (folder / "array").write_bytes(b"x")
        (folder / "inner").rmdir()
        return {}

    build_artifact(tmp_path / "stage", {}, {}, write)
    write_json(tmp_path / "manifest.json", {})
    assert len([kind for kind, _ in events if kind == "replace"]) >= 6
    assert written_after_power_loss(events) == []
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    events.clear()
    write_json(tmp_path / "manifest.json", {})
    assert written_after_power_loss(events)
