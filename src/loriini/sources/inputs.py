"""What to read: inputs as the user names them, the parts that tasks read, and what tells a changed input."""

import hashlib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loriini.errors import InputError
from loriini.jobs.artifact import digest
from loriini.sources.compressed import suffixes
from loriini.sources.dropped import no_documents
from loriini.sources.fields import domain_from_name
from loriini.sources.files import (
    files_at,
    fingerprint,
    is_remote,
    local_path,
    matching_paths,
    open_binary,
    size_of,
)
from loriini.sources.formats import reader_of
from loriini.sources.hub import PREFIX, is_data_set, plain_name, revision, shard_count

HASHED_BYTES = 1 << 30
"""Inputs of at most so many bytes together are told by their bytes, larger ones by sizes and mtimes."""

SAVED_NOTES = ("dataset_info.json", "dataset_dict.json", "state.json")
"""What the datasets library writes beside the Arrow files of a saved data set."""


@dataclass(frozen=True)
class InputSpec:
    """What to read: a path, a URL, a pattern of these, or a data set.

    `name` is the domain of documents that have none, `weight` the share of them to take.
    """

    path: str
    name: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class InputFile:
    """What one task reads: a file, or a shard of a data set."""

    path: str
    name: str
    """Path in the input: begins the id of a document without one."""
    domain: str
    """The domain of a document without one."""
    weight: float = 1.0
    """The share of the documents to take."""
    in_folder: bool = False
    """Whether the file was found, and not given by name."""
    size: int | None = None
    """Bytes, packed as they are; None when unknown."""
    shard: tuple[int, int] | None = None
    """(i, n) for shard i of n of a data set."""


def parse_input(text: str | Path) -> InputSpec:
    """An input as the command line has it, `[NAME=]PATH[:WEIGHT]`. What exists by its whole name is a path.

    Raises InputError for a weight that is not in (0, 1].
    """
    whole = str(text)
    named = None if _exists(whole) else re.fullmatch(r"([\w.-]+)=(.+)", whole, re.DOTALL)
    name, path = (named[1], named[2]) if named else (None, whole)
    path, weight = _weighted(path)
    share = _number(weight)
    if not 0 < share <= 1:
        told = f"the weight {weight} is not in (0, 1], the share of the documents to take"
        raise InputError(
            f"{whole}: {told}; "
            "to have documents more than once, prepare them apart and train with --corpus-weights"
        )
    return InputSpec(plain_name(local_path(path)), name, share)


def input_files(inputs: Sequence[str | Path]) -> list[InputFile]:
    """The files and shards behind `inputs`, in order, each readable alone; InputError for a missing one."""
    return [part for text in inputs for one in _matching(text) for part in _parts(one)]


def input_identity(inputs: Sequence[str | Path]) -> dict[str, str]:
    """Map every file to what changes when it does: the SHA-256 of its bytes, while inputs are small together.

    Beyond 1 GiB, a file's size and mtime stand for it; on another machine, all that is told of it, as its
    ETag; a data set's commit for a data set. Raises InputError when an input is missing.
    """
    paths = [path for text in inputs for one in _matching(text) for path in _files(one)]
    states = {path: _state(path) for path in paths}
    sizes = [int(found["size"]) for path, found in states.items() if _is_here(path) and "size" in found]
    by_bytes = sum(sizes) <= HASHED_BYTES
    return {
        path: _hash(path) if by_bytes and _is_here(path) and "size" in found else digest(found)
        for path, found in states.items()
    }


def _weighted(path: str) -> tuple[str, str]:
    """A path and the weight after its last colon, "1" for want of one; the port of a URL is none."""
    before, _, last = path.rpartition(":")
    is_port = is_remote(path) and re.fullmatch(r"[^/]+//[^/]*:\d+", path)
    if not (before and last) or is_port or _exists(path):
        return path, "1"
    return (before, last) if _exists(before) or not math.isnan(_number(last)) else (path, "1")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _matching(text: str | Path) -> list[InputSpec]:
    """An input for every file or folder that its pattern matches."""
    one = parse_input(text)
    return [one] if is_data_set(one.path) else [replace(one, path=path) for path in matching_paths(one.path)]


def _parts(one: InputSpec) -> list[InputFile]:
    if is_data_set(one.path):
        count = shard_count(one.path)
        name = os.path.basename(one.path.removeprefix(PREFIX).split(":")[0].rstrip("/"))
        whole = InputFile(one.path, name, one.name or name, one.weight)
        return [replace(whole, name=f"{name}-{i}", shard=(i, count)) for i in range(count)]
    files = files_at(one.path)
    if files is None:
        name = _valid(os.path.basename(one.path))
        return [
            InputFile(one.path, name, one.name or domain_from_name(name), one.weight, size=size_of(one.path))
        ]
    if not files:
        raise no_documents(one.path, {})
    if any(suffixes(file)[0] == ".arrow" for file in files):
        files = [file for file in files if os.path.basename(file) not in SAVED_NOTES]
    return [_part_in_folder(one, file) for file in files]


def _part_in_folder(one: InputSpec, file: str) -> InputFile:
    root = one.path.rstrip("/")
    name = file.removeprefix(f"{root}/") if file.startswith(f"{root}/") else os.path.basename(file)
    if reader_of(file, in_folder=True):
        domain = domain_from_name(name)
    else:
        folder = root if is_remote(root) else os.path.abspath(root)
        domain = name.split("/")[0] if "/" in name else os.path.basename(folder)
    name, domain = _valid(name), _valid(domain)
    return InputFile(file, name, one.name or domain, one.weight, in_folder=True, size=size_of(file))


def _valid(name: str) -> str:
    r"""A file's name with `\udce9` for its byte e9 when that is no UTF-8: ids and domains must be."""
    return name.encode(errors="backslashreplace").decode()


def _files(one: InputSpec) -> list[str]:
    if not is_data_set(one.path):
        return files_at(one.path) or [one.path]
    here = one.path.removeprefix(PREFIX).split(":")[0]
    return files_at(here) or [here] if os.path.isdir(here) else [one.path]


def _state(path: str) -> dict[str, Any]:
    if is_data_set(path):
        return {"revision": revision(path)}
    try:
        return fingerprint(path)
    except OSError as error:
        return {"unreadable": type(error).__name__}  # reading it says so


def _hash(path: str) -> str:
    try:
        with open_binary(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        return digest({"unreadable": type(error).__name__})


def _is_here(path: str) -> bool:
    return not is_remote(path) and not is_data_set(path)


def _exists(path: str) -> bool:
    return os.path.exists(local_path(path))
