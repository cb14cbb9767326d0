import errno
import fcntl
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.data.jobs import lock
from loriini.data.jobs.lock import FolderLocked, folder_lock, waiting_lock, when_free

HOLD = """
import sys
from pathlib import Path
from loriini.data.jobs.lock import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="another process is at work here"), folder_lock(tmp_path):
            pass
        other.kill()
    with folder_lock(tmp_path):
        assert not list(tmp_path.iterdir())
    with folder_lock(tmp_path):
        pass


def test_where_folders_cannot_be_locked_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS makes an exclusive lock only of a file that is open for writing."""
    flock = fcntl.flock

    def as_on_nfs(descriptor: int, operation: int) -> None:
        if not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_RDWR:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", as_on_nfs)
    for _ in range(2):
        with folder_lock(tmp_path), pytest.raises(FolderLocked), folder_lock(tmp_path):
            pass


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    for _ in range(2):
        with folder_lock(tmp_path):
            pass
    assert capsys.readouterr().err.count("cannot be locked (no locks here); let only one command") == 1


def test_a_folder_is_waited_for_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> str:
        with folder_lock(tmp_path / "folder"):
            return "done"

    waited = []
    with ExitStack() as other:
        other.enter_context(waiting_lock(tmp_path / "folder"))

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                other.close()

        monkeypatch.setattr(lock.time, "sleep", sleep)
        assert when_free(work, "waiting for another process") == "done"
    assert len(waited) == 2
    assert capsys.readouterr().err.count("waiting for another process") == 1


def test_another_error_is_not_waited_for() -> None:
    with pytest.raises(InputError, match="wrong"):
        when_free(lambda: refuse("wrong"))


def refuse(why: str) -> None:
    raise InputError(why)
