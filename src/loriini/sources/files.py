"""Files wherever they are: a path on this machine, or the URL of anything that fsspec reaches."""

import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import fsspec

from loriini.errors import InputError

_HERE = ("file://", "local://")


def is_remote(path: str | Path) -> bool:
    """Whether `path` is a URL, and not a path of this machine."""
    return "://" in str(path) and not str(path).startswith(_HERE)


def local_path(path: str | Path) -> str:
    """A path of this machine without `file://`; a URL as it is."""
    text = str(path)
    return next((text.removeprefix(prefix) for prefix in _HERE if text.startswith(prefix)), text)


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file to read its bytes. OSError when it cannot be."""
    if not is_remote(path):
        return open(local_path(path), "rb")
    system, name = _system(str(path))
    opened: IO[bytes] = system.open(name, "rb")
    return opened


def matching_paths(path: str | Path) -> list[str]:
    """The files and folders whose names match a pattern, in sorted order; only `path` when it exists itself.

    Elsewhere only `*` is a sign of a pattern. Raises InputError when nothing is there.
    """
    if not is_remote(path):
        path = local_path(path)
        found = [path] if os.path.exists(path) else sorted(filter(os.path.exists, glob.glob(path)))
        if not found:
            raise InputError(f"{path}: no such file or folder; check the path")
        return found
    system, name = _system(str(path))
    if "*" not in name:
        return [str(path)]
    with _reaching(path):
        found = system.glob(name)
    if not found:
        raise InputError(f"{path}: no file here; check the address")
    return sorted(system.unstrip_protocol(file) for file in found)


def files_at(path: str | Path) -> list[str] | None:
    """The files of a folder in sorted order, without hidden ones; None for a file.

    Links are followed, and no folder is walked twice. What cannot be read, such as a link to nothing, a
    locked folder or a pipe, is listed too, so that reading it says so. Raises InputError when nothing is
    there, and for what is neither file nor folder.
    """
    if not is_remote(path):
        path = local_path(path)
        if not os.path.exists(path):
            raise InputError(f"{path}: no such file or folder; check the path")
        if is_special(path):
            told = "neither a file nor a folder, and cannot be read twice"
            raise InputError(f"{path}: {told}; write it to a file, and give that")
        return list(_walk(path, set())) if os.path.isdir(path) else None
    system, name = _system(str(path))
    with _reaching(path):
        if system.info(name)["type"] != "directory":
            return None
        hidden = len(name.rstrip("/"))
        found = [file for file in system.find(name) if "/." not in file[hidden:]]
    return sorted(system.unstrip_protocol(file) for file in found)


def is_special(path: str | Path) -> bool:
    """Whether something is there, on this machine, that is neither file nor folder: a pipe, a device."""
    if is_remote(path):
        return False
    try:
        return not _is_ordinary(os.stat(local_path(path)))
    except OSError:
        return False


def fingerprint(path: str | Path) -> dict[str, Any]:
    """What changes when a file does: size and mtime here; elsewhere all that is told of it, as its ETag."""
    if is_remote(path):
        system, name = _system(str(path))
        with _reaching(path):
            info = system.info(name)
        # A URL may come with a signature that is new each time.
        return {key: str(value) for key, value in info.items() if key != "url"}
    found = os.stat(local_path(path))
    if not _is_ordinary(found):
        raise OSError("neither a file nor a folder")  # so that nobody waits for what comes out of it
    return {"size": found.st_size, "mtime": found.st_mtime_ns}


def _is_ordinary(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)


def _walk(folder: str, walked: set[str]) -> Iterator[str]:
    """What is no folder below `folder`, depth first and sorted; not what was walked, by whatever path."""
    real = os.path.realpath(folder)
    if real in walked:
        return
    walked.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        yield folder
        return
    for path in (os.path.join(folder, name) for name in names if not name.startswith(".")):
        if os.path.isdir(path):
            yield from _walk(path, walked)
        else:
            yield path


def size_of(path: str | Path) -> int | None:
    """A file's bytes; None when nobody tells."""
    try:
        size = fingerprint(path).get("size", "")
    except OSError:
        return None
    return int(size) if str(size).isdigit() else None


@contextmanager
def _reaching(url: str | Path) -> Iterator[None]:
    """InputError for whatever another machine, or the package that asks it, answers but a file."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{url}: no such file or folder; check the address") from None
    except Exception as error:
        raise InputError(f"{url}: cannot be reached ({error}); check the address and your access") from None


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the file's name there; InputError when its package is missing."""
    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url}: {error}; install what reads this protocol, as s3fs, gcsfs or fsspec[http]"
        ) from None
