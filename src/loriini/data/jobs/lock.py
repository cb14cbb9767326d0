"""Folders that one process at a time writes into, and the file that says which job a folder holds."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from loriini.common.atomic import LOCK, is_unused, write_json
from loriini.common.errors import InputError
from loriini.common.json_file import read_object
from loriini.common.progress import inform

Result = TypeVar("Result")
POLL_SECONDS = 1.0
"""Between attempts to lock a folder that another process has locked."""
AT_WORK = "another process is at work here"
"""In the message of every FolderLocked."""


class FolderLocked(InputError):
    """Another process is at work in a folder."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock an existing folder by its file `.lock`, which stays; FolderLocked while another process holds it.

    The operating system releases the lock when the process ends, however it ends.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FolderLocked(f"{folder}: {AT_WORK}; wait until it is done, or choose another folder") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, which is made if needed, and hold it."""
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / LOCK).acquire(poll_interval=POLL_SECONDS):
        yield


def when_free(function: Callable[[], Result], waiting: str = "") -> Result:
    """What `function` returns, called again until no other process is at work in the folder that it locks.

    `waiting` is reported once if it has to wait.
    """
    while True:
        try:
            return function()
        except FolderLocked:
            if waiting:
                inform(waiting)
            waiting = ""
            time.sleep(POLL_SECONDS)


def claim_folder(path: Path, settings: Mapping[str, Any], begun: bool, command: str) -> None:
    """Record in the file `path` the settings of the job in its folder; the folder must be locked.

    `begun` is whether the folder holds work of its recorded job. InputError if another job has begun, or the
    folder holds other files.
    """
    settings = json.loads(json.dumps(settings))  # as they are read again: tuples are lists
    if path.exists():
        found = read_object(path, "choose another --out")
        changed = sorted(name for name, value in settings.items() if found.get(name) != value)
        if not changed:
            return
        if begun:
            raise InputError(
                f"{path}: this folder holds a job with other {', '.join(changed)}; choose another --out"
            )
    elif not is_unused(path.parent):
        raise InputError(f"{path.parent}: exists and is no folder of `{command}`; choose another --out")
    write_json(path, settings)
