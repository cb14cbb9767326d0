"""A folder that one process at a time writes into."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loriini.errors import InputError


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a folder that is there; InputError while another process holds it.

    The operating system lets go of it when the process ends, however it ends, and no file is left. Where a
    file system knows no such locks (some networks'), nothing is held.
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
