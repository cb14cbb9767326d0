"""A signal ends `prepare` and `compare` with code 130 and without orphans."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import product
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
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
MANY_TASKS = """
import sys
from data.prepare.small import shrink
from loriini.__main__ import main
shrink()
main(sys.argv[1:])
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are listed in Linux's /proc"
)


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


def started(command: list[Any], mark: str, **environment: str) -> subprocess.Popen[bytes]:
    """A command in a session of its own, with the mark in its environment."""
    return subprocess.Popen(
        command,
        env={**os.environ, MARK: mark, **environment},
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run under nohup
    )


def ended(process: subprocess.Popen[bytes], mark: str, number: int, group: bool) -> str:
    """Send the signal to the process or its group; what it said, when all marked processes have ended."""
    (os.killpg if group else os.kill)(process.pid, number)
    error = process.communicate(timeout=SECONDS)[1].decode()
    wait_until(lambda: not marked(mark))
    assert number == signal.SIGKILL or "Traceback" not in error
    assert process.returncode == (-number if number == signal.SIGKILL else 130), error
    return error


def signals(in_suite: tuple[int, bool, Any], name: str, moments: Iterable[Any]) -> pytest.MarkDecorator:
    """Every signal to a process or its group at every moment, all but one in the drill."""
    cases = [case for case in product(SIGNALS, (False, True), moments) if case != in_suite]
    drill = [pytest.param(*case, marks=pytest.mark.drill) for case in cases]
    return pytest.mark.parametrize(("number", "group", "moment"), [pytest.param(*in_suite, id=name), *drill])


@signals((signal.SIGHUP, True, 2), "hang-up of the terminal", range(4))
@needs_proc
def test_prepare_ends_with_its_workers(tmp_path: Path, number: int, group: bool, moment: int) -> None:
    """Moments: the folder is made; workers start; they have started; a stage is done."""
    documents = [write_documents(tmp_path / f"{name}.jsonl", 1000) for name in "abc"]
    mark, out = uuid4().hex, tmp_path / "c"
    command = [sys.executable, "-c", MANY_TASKS, "prepare", "c", "--documents", *documents, "--out", tmp_path]
    path = os.pathsep.join(filter(None, sys.path))
    process = started([*command, "--workers", "3", "--tokenizer", "bpe:400"], mark, PYTHONPATH=path)
    wait_until(out.exists, process)
    if moment == 1:
        wait_until(lambda: len(marked(mark)) >= 2, process)
    elif moment == 2:
        wait_until(lambda: len(marked(mark)) >= 4, process)
        time.sleep(0.5)
    elif moment == 3:
        wait_until((out / "documents").exists, process)
    error = ended(process, mark, number, group)
    assert number == signal.SIGKILL or "interrupted; run the same command again" in error


@signals((signal.SIGINT, True, "import"), "Ctrl-C", ("import", "work"))
@needs_proc
def test_compare_ends_with_its_trainings(tmp_path: Path, number: int, group: bool, moment: str) -> None:
    """Moments: the fork server, which must outlive the signal, imports modules; a training is at work."""
    mark, out = uuid4().hex, tmp_path / "out"
    corpus = prepared(tmp_path / "corpus", length=32).folder
    heldout = write_documents(tmp_path / "heldout.jsonl", 40)
    command = [sys.executable, "-m", "loriini", "compare", "lory", "--seeds=2", "--out", out]
    given = ("--corpus", corpus, "--heldout", heldout, *overrides(steps=100_000))
    process = started([*command, *given], mark)
    if moment == "import":
        wait_until(lambda: any("forkserver" in line for line in marked(mark)), process)
        time.sleep(0.5)
    else:
        wait_until(lambda: list(out.glob("runs/*/metrics.jsonl")), process)
    error = ended(process, mark, number, group)
    assert "Traceback" not in error
    said = "interrupted; 0 of 2 trainings ended, those at work are saved"
    assert number == signal.SIGKILL or error.splitlines()[-1].startswith(said)
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
