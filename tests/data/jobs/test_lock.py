"""One process at a time works in a folder."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

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
        with pytest.raises(FolderLocked, match=str(tmp_path)), folder_lock(tmp_path):
            pass
        other.kill()
    for _ in range(2):
        with folder_lock(tmp_path), pytest.raises(FolderLocked), folder_lock(tmp_path):
            pass


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
