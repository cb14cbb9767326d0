"""A lock that lets one process at a time write into a folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loriini.errors import InputError


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock an existing folder; InputError while another process holds the lock.

    The operating system releases the lock when the process ends, however it ends, and no file is left. On
    file systems without such locks (some network file systems) nothing is locked.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process is at work here; wait until it is done, or choose another folder"
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
