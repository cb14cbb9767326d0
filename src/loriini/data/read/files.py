"""Files on this machine or behind any URL that fsspec reaches."""

import glob
import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import fsspec

from loriini.common.errors import InputError

_LOCAL = ("file://", "local://")
_CHANGES = {"size", "etag", "lastmodified", "mtime", "modified", "created", "generation", "md5hash", "blobid"}
"""Names, in lower case without `-` and `_`, of metadata that change with a remote file's contents."""


def is_remote(path: str | Path) -> bool:
    """Whether `path` is a URL of another machine."""
    return "://" in str(path) and not str(path).startswith(_LOCAL)


def local_path(path: str | Path) -> str:
    """A path of this machine without `file://`; other URLs unchanged."""
    text = str(path)
    return next((text.removeprefix(prefix) for prefix in _LOCAL if text.startswith(prefix)), text)


def without_query(path: str | Path) -> str:
    """A path; for a web address (`http`, `https`), the part before `?` or `#`, which names the file."""
    text = str(path)
    return re.split("[?#]", text, maxsplit=1)[0] if re.match(r"(\w+::)*https?://", text) else text


def as_utf8(name: str) -> str:
    r"""A file name as valid UTF-8, for ids and domains: `\udce9` for a byte e9 that is not, in any locale."""
    name = name.encode(errors="surrogateescape").decode(errors="surrogateescape")
    return name.encode(errors="backslashreplace").decode()


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file for reading bytes; raises OSError."""
    if not is_remote(path):
        return open(path, "rb")
    system, name = _file_system(str(path))
    return io.BufferedReader(system.open(name, "rb"))  # files of fsspec have no readline with a limit


def machine_failed(path: str, error: object, what: str = "disk and memory") -> InputError:
    """The error for a failure of the machine, not of the file: skipping it would lose good documents."""
    return InputError(f"{path}: {error}; check {what}, and rerun")


def matching_paths(path: str) -> list[str]:
    """The files and folders that match a pattern, sorted; `path` alone when it exists by this name.

    `**` matches folders at any depth; the contents of a matching folder are not listed again. Broken links
    are listed, so that reading reports them. In a URL only `*` makes a pattern. Raises InputError when
    nothing matches.
    """
    if not is_remote(path):
        matches = [path] if os.path.exists(path) else sorted(set(glob.glob(path, recursive=True)) - {path})
        if not matches:
            what = "no file matches the pattern" if glob.has_magic(path) else "no such file or folder"
            raise InputError(f"{path}: {what}; check the path")
        return _outermost({match: os.path.isdir(match) for match in matches})
    system, name = _file_system(path)
    if "*" not in name:
        return [path]
    with _remote_errors(path):
        infos = system.glob(name, detail=True)
    if not infos:
        raise InputError(f"{path}: no file matches the pattern; check the address")
    return _outermost(
        {system.unstrip_protocol(match): info["type"] == "directory" for match, info in infos.items()}
    )


def files_at(path: str | Path) -> list[str] | None:
    """The files below a folder, sorted, without hidden ones; None if `path` is a file.

    Links are followed; no folder is visited twice. What cannot be read, such as a broken link or a folder
    without permission, is listed too, so that reading reports it; pipes and devices are left out. Raises
    InputError if `path` is a pipe or device, or is not at its URL.
    """
    if not is_remote(path):
        if _is_special(path):
            raise InputError(f"{path}: neither a file nor a folder; write it to a file, and give that")
        return list(_walk(str(path), set())) if os.path.isdir(path) else None
    system, name = _file_system(str(path))
    with _remote_errors(path):
        if system.info(name)["type"] != "directory":
            return None
        prefix = len(name.rstrip("/"))
        files = [file for file in system.find(name) if "/." not in file[prefix:]]
    return sorted(system.unstrip_protocol(file) for file in files)


def _is_special(path: str | Path) -> bool:
    """Whether `path` is a pipe, a device or the like: opening it could block."""
    return not os.path.isfile(path) and not os.path.isdir(path) and os.path.exists(path)


def fingerprint(path: str | Path) -> dict[str, Any]:
    """Values that change when a file does: its size and mtime; for a remote file, metadata like the ETag.

    A file that cannot be read has only `unreadable`; reading it reports why.
    """
    if is_remote(path):
        system, name = _file_system(str(path))
        with _remote_errors(path):
            info = system.info(name)
        return {key: str(info[key]) for key in info if re.sub("[-_]", "", key).lower() in _CHANGES}
    try:
        status = os.stat(path)
    except OSError as error:
        return {"unreadable": type(error).__name__}
    return {"size": status.st_size, "mtime": status.st_mtime_ns}


def _outermost(is_folder: Mapping[str, bool]) -> list[str]:
    """Paths in sorted order, without those inside another of them, which would be read twice."""
    folders = {path.rstrip("/") for path, folder in is_folder.items() if folder}
    return [
        path
        for path in sorted(is_folder)
        if folders.isdisjoint(accumulate(path.rstrip("/").split("/")[:-1], "{}/{}".format))
    ]


def _walk(folder: str, visited: set[str]) -> Iterator[str]:
    """The files below `folder`, depth first and sorted, except in folders already visited by another path."""
    real = os.path.realpath(folder)
    if real in visited:
        return
    visited.add(real)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        yield folder
        return
    for path in (os.path.join(folder, name) for name in names if not name.startswith(".")):
        if os.path.isdir(path):
            yield from _walk(path, visited)
        elif not _is_special(path):
            yield path


@contextmanager
def _remote_errors(url: str | Path) -> Iterator[None]:
    """Turn any error of a remote file system into an InputError."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error  # over HTTP every error is a FileNotFoundError
        if isinstance(cause, FileNotFoundError):
            raise InputError(f"{url}: no such file or folder; check the address") from None
        raise InputError(f"{url}: cannot be reached ({cause}); check the address and your access") from None


def _file_system(url: str) -> tuple[Any, str]:
    """A URL's file system and the path in it; InputError when the package for its protocol is missing."""
    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url}: {error}; install a package for this protocol, such as s3fs, gcsfs or fsspec[http]"
        ) from None
