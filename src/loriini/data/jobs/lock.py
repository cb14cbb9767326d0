"""Folders that one process at a time writes into, and the file that says which job a folder holds."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from loriini.common.atomic import LOCK, is_unused, write_json
from loriini.common.errors import InputError
from loriini.common.json_file import read_object
from loriini.common.progress import inform

POLL_SECONDS = 1.0
"""Between attempts to lock a folder that another process has locked."""


@contextmanager
def folder_lock(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder, made if needed, by its file `.lock`, which stays.

    While another process holds the lock, InputError, or with `wait` wait for it. The operating system
    releases it when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock, held = FileLock(folder / LOCK), f"{folder}: another process is at work here"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise InputError(f"{held}; wait until it is done, or choose another folder") from None
        inform(f"{held}; waiting for it")
        lock.acquire(poll_interval=POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def claim_folder(path: Path, settings: Mapping[str, Any], begun: bool, command: str) -> None:
    """Record in the file `path` the settings of the job in its folder; the folder must be locked.

    `begun`: work for the recorded settings exists, so other settings are refused. InputError for these, or if
    the folder holds other files.
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
