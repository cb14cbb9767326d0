import subprocess
import sys
from pathlib import Path

import pytest

from loriini.errors import InputError
from loriini.jobs.lock import folder_lock

HOLD = """
import sys
from pathlib import Path
from loriini.jobs.lock import folder_lock
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


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with folder_lock(tmp_path):
        pass
