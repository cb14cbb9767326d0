"""A lock that lets one process at a time write into a folder."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from loriini.errors import InputError
from loriini.progress import inform

Result = TypeVar("Result")
POLL_SECONDS = 1.0
"""Between attempts to lock a folder that another process has locked."""


class FolderLocked(InputError):
    """Another process is at work in a folder."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock an existing folder; FolderLocked while another process holds the lock.

    The operating system releases the lock when the process ends, however it ends, and no file is left. On
    file systems without such locks (some network file systems) nothing is locked.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderLocked(
                f"{folder}: another process is at work here; wait until it is done, or choose another folder"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, which is made if needed, and hold it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        when_free(lambda: held.enter_context(folder_lock(folder)))
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
