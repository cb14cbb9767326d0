"""Files wherever they are: a path on this machine, or the URL of anything that fsspec reaches."""

import os
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


def files_at(path: str | Path) -> list[str] | None:
    """The files of a folder, or of a URL with `*`, in sorted order without hidden ones; None for a file.

    Links are followed. What cannot be read, such as a link to nothing or a locked folder, is listed too, so
    that reading it says so. Raises InputError when nothing is there.
    """
    if not is_remote(path):
        path = local_path(path)
        if not os.path.exists(path):
            raise InputError(f"{path}: no such file or folder; check the path")
        return list(_walk(path)) if os.path.isdir(path) else None
    system, name = _system(str(path))
    with _reaching(path):
        if "*" in name:
            found = system.glob(name)
        elif system.info(name)["type"] != "directory":
            return None
        else:
            hidden = len(name.rstrip("/"))
            found = [file for file in system.find(name) if "/." not in file[hidden:]]
    if not found:
        raise InputError(f"{path}: no file here; check the address")
    return sorted(system.unstrip_protocol(file) for file in found)


def state(path: str | Path) -> dict[str, Any]:
    """What changes when a file does: size and mtime here; elsewhere all that is told of it, as its ETag."""
    if is_remote(path):
        system, name = _system(str(path))
        with _reaching(path):
            info = system.info(name)
        # A URL may come with a signature that is new each time.
        return {key: str(value) for key, value in info.items() if key != "url"}
    stat = os.stat(local_path(path))
    return {"size": stat.st_size, "mtime": stat.st_mtime_ns}


def _walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The files below `folder`, depth first and sorted; a link to a folder above is not followed."""
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError:
        yield folder
        return
    for entry in found:
        if entry.is_dir():
            yield from _walk(entry.path, (*above, real))
        elif entry.is_file() or not os.path.exists(entry.path):  # neither pipe nor socket nor device
            yield entry.path


def size_of(path: str | Path) -> int | None:
    """A file's bytes; None when nobody tells."""
    try:
        size = state(path).get("size", "")
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
