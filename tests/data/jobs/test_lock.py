"""One process at a time works in a folder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loriini.common.errors import InputError
from loriini.data.jobs import lock
from loriini.data.jobs.lock import folder_lock

HOLD = """
import sys
from pathlib import Path
from loriini.data.jobs.lock import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of a folder until its input ends."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        yield other


def test_one_process_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path) as other:
        with pytest.raises(InputError, match=f"{tmp_path}: .* at work here; wait"), folder_lock(tmp_path):
            pass
        other.kill()
    for _ in range(2):
        with folder_lock(tmp_path), pytest.raises(InputError), folder_lock(tmp_path):
            pass


def test_a_folder_is_waited_for_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    with another_process(tmp_path / "folder") as other:

        def inform(text: str) -> None:
            said.append(text)
            assert other.stdin
            other.stdin.close()  # it ends a little later

        monkeypatch.setattr(lock, "inform", inform)
        with folder_lock(tmp_path / "folder", wait=True):
            pass
    assert said == [f"{tmp_path / 'folder'}: another process is at work here; waiting for it"]
