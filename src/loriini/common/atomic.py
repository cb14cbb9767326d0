"""Atomic and durable writing of files and folders: whole or not at all, also after a power loss."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOCK = ".lock"
"""The file in a folder that is locked where folders cannot be (`loriini.data.jobs.lock`)."""

UNFINISHED = ".unfinished"
REMOVED = ".removed"
FOLDERS_WITHOUT_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)
"""Errors of file systems, such as CIFS, that cannot sync a folder."""


@contextmanager
def atomic(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path next to `path` to write a file or a folder to; on success it becomes `path`.

    Until then `path` keeps its old content. A file or an empty folder is replaced; a folder that is not empty
    must be removed first (OSError). An error removes what was written; a kill leaves `temporary` (by default
    `.NAME.unfinished`), which the next attempt removes.
    """
    path = Path(os.path.abspath(path))
    temporary = temporary or unfinished(path)
    _remove(temporary)
    try:
        yield temporary
        commit(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def unfinished(path: Path) -> Path:
    """The temporary path at which a file or folder is written until it is complete."""
    return path.with_name(f".{path.name}{UNFINISHED}")


def commit(temporary: Path, path: Path) -> None:
    """Rename a file or folder so that after a crash `path` has either its old content or all of the new.

    The contents are synced before the rename, the parent folder after it.
    """
    for folder, _, files in os.walk(temporary, topdown=False):
        for name in files:
            fsync(Path(folder, name))
        fsync(Path(folder))
    if temporary.is_file():
        fsync(temporary)
    os.replace(temporary, path)
    fsync(path.parent)


def discard(temporary: Path) -> None:
    """Remove the temporary folder of a killed attempt, even if its process still writes there.

    It is renamed first, so that the process cannot commit a part of it. If the removal is interrupted, the
    next attempt finds the folder by its new name.
    """
    removed = temporary.with_name(temporary.name.removesuffix(REMOVED) + REMOVED)
    if temporary != removed:
        shutil.rmtree(removed, ignore_errors=True)
        with suppress(OSError):
            os.replace(temporary, removed)
    shutil.rmtree(removed, ignore_errors=True)


def fsync(path: Path) -> None:
    """Sync a file to the disk, or a folder's entries where the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in FOLDERS_WITHOUT_SYNC or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, errors: str = "strict") -> None:
    """Write a UTF-8 text file atomically; `errors` is that of `str.encode`."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors=errors)


def write_json(path: Path, value: Any, sort_keys: bool = True) -> None:
    """Write a JSON file atomically; with `sort_keys` False keys keep the order that they have in `value`."""
    with atomic(path) as temporary, open(temporary, "w") as file:
        json.dump(value, file, indent=1, sort_keys=sort_keys)
        file.write("\n")


def is_unused(folder: Path) -> bool:
    """Whether a folder holds nothing but its lock and `.NAME.unfinished` paths of killed attempts."""
    names = [path.name for path in folder.iterdir() if path.name != LOCK]
    return all(name.startswith(".") and name.endswith(UNFINISHED) for name in names)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
