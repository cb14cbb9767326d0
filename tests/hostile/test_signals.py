"""A signal ends `prepare` and `compare` with code 130 and without orphans."""

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
from compare.conftest import overrides
from loriini.common.signals import ending_signals
from runs import prepared

MARK = "LORIINI_TEST_MARK"
SECONDS = 120
MANY_TASKS = """
import sys
from data.prepare.small import shrink
from loriini.__main__ import main
shrink()
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


@pytest.mark.parametrize(
    ("number", "group", "moment"),
    [
        pytest.param(signal.SIGINT, True, "import", id="Ctrl-C"),
        *(
            pytest.param(number, group, moment, marks=pytest.mark.drill)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
            for group in (False, True)
            for moment in ("import", "work")
            if (number, group, moment) != (signal.SIGINT, True, "import")
        ),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are listed in Linux's /proc")
def test_compare_ends_with_its_trainings(tmp_path: Path, number: int, group: bool, moment: str) -> None:
    """Moments: the fork server, which must outlive the signal, imports modules; a training is at work."""
    mark, out = uuid4().hex, tmp_path / "out"
    corpus = prepared(tmp_path / "corpus", length=32).folder
    heldout = write_documents(tmp_path / "heldout.jsonl", 40)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "loriini", "compare", "lory", "--seeds=2", "--out", out),
            *("--corpus", corpus, "--heldout", heldout, *overrides(steps=100_000)),
        ],
        env={**os.environ, MARK: mark},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    if moment == "import":
        wait_until(lambda: any("forkserver" in line for line in marked(mark)), process)
        time.sleep(0.5)
    else:
        wait_until(lambda: list(out.glob("runs/*/metrics.jsonl")), process)
    (os.killpg if group else os.kill)(process.pid, number)
    error = process.communicate(timeout=SECONDS)[1].decode()
    wait_until(lambda: not marked(mark))
    assert "Traceback" not in error
    if number != signal.SIGKILL:
        assert process.returncode == 130, error
        assert error.splitlines()[-1].startswith(
            "interrupted; 0 of 2 trainings ended, those at work are saved"
        )
    if moment == "work" and not (group and number == signal.SIGKILL):
        assert list(out.glob("runs/*/checkpoints/step-*"))


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
