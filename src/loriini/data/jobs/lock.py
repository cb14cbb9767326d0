"""A lock that lets one process at a time write into a folder."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from loriini.common.atomic import LOCK
from loriini.common.errors import InputError
from loriini.common.progress import inform, warn

Result = TypeVar("Result")
POLL_SECONDS = 1.0
"""Between attempts to lock a folder that another process has locked."""
AT_WORK = "another process is at work here"
"""In the message of every FolderLocked."""


class FolderLocked(InputError):
    """Another process is at work in a folder."""


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock an existing folder; FolderLocked while another process holds the lock.

    The operating system releases the lock when the process ends, however it ends. Network file systems lock
    only files that are open for writing: there, `.lock` in the folder is locked, and left. Where that cannot
    be locked either, it is warned of, and nothing is locked.
    """
    with ExitStack() as opened:
        descriptor = _open(folder, os.O_RDONLY, opened)
        try:
            _lock(descriptor, folder)
        except OSError:
            try:
                _lock(_open(folder / LOCK, os.O_RDWR | os.O_CREAT, opened), folder)
            except OSError as error:
                _warn_of_no_lock(folder, str(error))
        yield


def _open(path: Path, flags: int, opened: ExitStack) -> int:
    """A descriptor of a path, which is closed with `opened`, and the lock with it."""
    descriptor = os.open(path, flags)
    opened.callback(os.close, descriptor)
    return descriptor


def _lock(descriptor: int, folder: Path) -> None:
    """Lock what is open of a folder. OSError where the file system does not."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderLocked(f"{folder}: {AT_WORK}; wait until it is done, or choose another folder") from None


@cache
def _warn_of_no_lock(folder: Path, reason: str) -> None:
    """Once for each folder."""
    warn(f"{folder}: cannot be locked ({reason}); let only one command at a time write there")


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
