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
    """Lock a folder, created if needed, by its file `.lock`, which is never removed.

    If another process holds the lock, raise InputError, or with `wait` wait for it. The operating system
    releases the lock when the process that holds it ends, even if it is killed.
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

    Raises InputError for other settings than the recorded ones if `begun` (work with those exists), and if
    the folder holds other files.
    """
    settings = json.loads(json.dumps(settings))  # as they will be read back: tuples become lists
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
