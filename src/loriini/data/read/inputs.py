"""Inputs as the user names them, the files behind them, and what identifies their contents."""

import glob
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import digest, file_hash
from loriini.data.read.compressed import Span, suffixes
from loriini.data.read.files import (
    as_utf8,
    files_at,
    fingerprint,
    is_changed_remotely,
    is_remote,
    local_path,
    matching_paths,
    size_of,
    without_query,
)
from loriini.data.read.formats import reader_of
from loriini.data.read.hub import PREFIX, is_data_set, plain_name, revision, saved_folder, shard_count
from loriini.data.read.names import domain_from_name, folders_above
from loriini.data.read.records import no_documents

HASHED_BYTES = 1 << 30
"""Inputs of at most this total size are identified by their bytes, larger ones by sizes and mtimes."""

State = dict[str, Any]
"""What changes when a file's contents do: size and mtime, a server's metadata, or a data set's commit."""

DATA_SET_METADATA = ("dataset_info.json", "dataset_dict.json", "state.json")
"""Files that the datasets library writes next to the Arrow files of a saved data set."""

OWN_FOLDERS = {
    "a prepared corpus": ("manifest.json", "instances/manifest.json"),
    "the folder of a run": ("run.json", "metrics.jsonl"),
}
"""Folders that commands wrote, and the files by which they are recognized."""
MODEL_FOLDER = {"the folder of a model": ("config.json", "*.safetensors")}
"""Refused only where it is the input itself: within a folder it may be a part of somebody's sources."""


@dataclass(frozen=True)
class InputSpec:
    """A path, a URL, a pattern of these, or a data set, as given by the user.

    `name` is the domain of documents without one; `weight` is the share of the documents to take, in (0, 1].
    """

    path: str
    name: str | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class InputFile:
    """A file or a shard of a data set, which can be read independently of the others."""

    path: str
    name: str
    """Path inside the input; the ids of documents without an id begin with it."""
    domain: str
    """The domain of documents without one."""
    weight: float = 1.0
    """The share of the documents to take."""
    in_folder: bool = False
    """Whether the file was found in a folder, not given by name."""
    size: int | None = None
    """Bytes on disk; None if unknown."""
    shard: tuple[int, int] | None = None
    """(i, n) for shard i of n of a data set."""
    revision: str | None = None
    """The commit of a data set on the Hub."""
    span: Span | None = None
    """A part of a plain file of JSON lines."""
    row_groups: tuple[int, int] | None = None
    """[start, stop) for a part of a parquet file: its row groups of these numbers."""

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a file."""
        return bool(self.span or self.row_groups)

    @property
    def continues(self) -> bool:
        """Whether it is a part of a file, and not the first."""
        return (self.span or self.row_groups or (0,))[0] > 0

    def place(self, number: int) -> str:
        """Where a record is in the file, ":7"; in a later part of JSON lines "@BYTE:7", counted from there.

        Empty for 0, the file as a whole.
        """
        start = self.span[0] if self.span else 0
        return f"@{start}:{number}" if number and start else f":{number}" if number else ""


def parse_input(text: str | Path) -> InputSpec:
    """Parse `[NAME=]PATH[:WEIGHT]`.

    Text that names existing files, also as a pattern, is a path without NAME. A path may begin with `~`,
    which shells leave as it is after `NAME=`. Raises InputError for a weight that is not in (0, 1].
    """
    whole = str(text)
    if not whole:
        raise InputError("an input is empty; give a path")
    is_path = _exists(whole) or _exists(_split_weight(whole)[0])
    named = None if is_path else re.fullmatch(r"([\w.-]+)=(.+)", whole, re.DOTALL)
    name, path = (named[1], named[2]) if named else (None, whole)
    path, weight = _split_weight(path)
    share = _number(weight)
    if not 0 < share <= 1:
        raise InputError(
            f"{whole}: the weight {weight} is not in (0, 1], the share of the documents to take; "
            "to have documents more than once, prepare them separately and train with --corpus-weights"
        )
    return InputSpec(plain_name(local_path(os.path.expanduser(path))), name, share)


def absolute_input(text: str | Path) -> str:
    """The same input for any working folder: a path on this machine is made absolute."""
    spec = parse_input(text)
    if folder := saved_folder(spec.path):
        path = PREFIX + os.path.abspath(folder) + spec.path.removeprefix(PREFIX + folder)
    elif _is_local(spec.path):
        path = os.path.abspath(spec.path)
    else:
        return str(text)
    name = f"{spec.name}=" if spec.name else ""
    weight = f":{spec.weight!r}" if spec.weight != 1 else ""
    return f"{name}{path}{weight}"


def check_inputs(inputs: Sequence[str], out: Path, stages: Collection[str]) -> None:
    """InputError for an input that contains the corpus `out`, or lies in one of its `stages`.

    The next run would read it as input. A pattern is also refused when `out`, or a file in it, would match as
    soon as it exists.
    """
    out = Path(os.path.realpath(out))
    for path in (parse_input(given).path for given in inputs):
        path = saved_folder(path) or path
        if not _is_local(path):
            continue
        pattern, deep, _ = os.path.abspath(path).partition("**")
        will_match = not os.path.exists(path) and any(
            folder.match(pattern.rstrip("/") if deep else pattern) for folder in (out, *out.parents)
        )
        for match in map(Path, matching_paths(path)):
            real = Path(os.path.realpath(match))
            if will_match or out.is_relative_to(real):
                raise InputError(f"{out}: lies inside the input {path}; choose another --out")
            if real != out and real.is_relative_to(out) and real.relative_to(out).parts[0] in stages:
                raise InputError(f"{match}: lies in a stage of the corpus {out}; choose another --out")


def input_files(inputs: Sequence[str | Path]) -> list[InputFile]:
    """The files and shards of `inputs`, in order; InputError for a missing input."""
    return [file for text in inputs for spec in _matching(text) for file in _files_of(spec)]


def input_identity(inputs: Sequence[str | Path]) -> dict[str, str]:
    """Map every file to a digest that changes when its contents do.

    If all files together are at most HASHED_BYTES, it is the SHA-256 of the file's bytes, otherwise of its
    size and mtime; for a remote file, of its metadata such as the ETag; for a data set, of its commit. Raises
    InputError when an input is missing.
    """
    return identity_of(input_states(inputs))


def input_states(inputs: Sequence[str | Path]) -> dict[str, State]:
    """The state of every file, and of every data set on the Hub; InputError when an input is missing."""
    paths = [path for text in inputs for spec in _matching(text) for path in _paths_of(spec)]
    return {path: _state(path) for path in paths}


def identity_of(states: Mapping[str, State]) -> dict[str, str]:
    """`input_identity` of the files with these states."""
    sizes = {path: int(s["size"]) for path, s in states.items() if _is_local(path) and "size" in s}
    hashed = sizes if sum(sizes.values()) <= HASHED_BYTES else {}
    return {path: _hash(path) if path in hashed else digest(state) for path, state in states.items()}


def states_behind(file: InputFile, state: Callable[[str], State | None]) -> dict[str, State | None]:
    """The states that change with a file: its own, or those of all files of a saved data set."""
    saved = saved_folder(file.path)
    paths = files_at(saved) or [] if saved else [file.path]
    return {path: state(path) for path in paths}


def is_changed(file: InputFile, before: Mapping[str, State | None]) -> bool:
    """Whether the states behind a file differ from `before`; InputError for one that cannot be reached."""
    if file.revision:
        return before[file.path] != {"revision": file.revision}
    if is_remote(file.path) and (known := before[file.path]) is not None:
        return is_changed_remotely(file.path, known)
    return states_behind(file, _state) != before


def _split_weight(path: str) -> tuple[str, str]:
    """A path and the weight after its last colon, by default "1". A URL's port is not a weight."""
    before, _, last = path.rpartition(":")
    is_port = is_remote(path) and re.fullmatch(r"[^/]+//[^/]*:\d+", path)
    if not (before and last) or is_port or _exists(path):
        return path, "1"
    is_weight = not math.isnan(_number(last)) or (_is_local(path) and _exists(before))
    return (before, last) if is_weight else (path, "1")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _matching(text: str | Path) -> list[InputSpec]:
    """An input for every file or folder that a pattern matches."""
    spec = parse_input(text)
    if is_data_set(spec.path):
        return [spec]
    return [replace(spec, path=path) for path in matching_paths(spec.path)]


def _files_of(spec: InputSpec) -> list[InputFile]:
    if is_data_set(spec.path):
        commit = revision(spec.path)
        count = shard_count(spec.path, commit)
        name = os.path.basename(spec.path.removeprefix(PREFIX).split(":")[0].rstrip("/"))
        whole = InputFile(spec.path, name, spec.name or name, spec.weight, revision=commit)
        return [replace(whole, name=f"{name}-{i}", shard=(i, count)) for i in range(count)]
    _refuse_folder(spec.path, OWN_FOLDERS | MODEL_FOLDER)
    paths = files_at(spec.path)
    if paths is None:
        name = as_utf8(os.path.basename(without_query(spec.path).rstrip("/")))
        domain = spec.name or domain_from_name(name, _folders_of_numbered(spec.path))
        return [InputFile(spec.path, name, domain, spec.weight, size=size_of(spec.path))]
    if not paths:
        raise no_documents(spec.path, {})
    marks = {signs[0] for signs in OWN_FOLDERS.values()}
    for folder in sorted({os.path.dirname(path) for path in paths if os.path.basename(path) in marks}):
        _refuse_folder(folder, OWN_FOLDERS)
    if any(suffixes(path)[0] == ".arrow" for path in paths):
        paths = [path for path in paths if os.path.basename(path) not in DATA_SET_METADATA]
    return [_file_in_folder(spec, path) for path in paths]


def _folders_of_numbered(path: str) -> list[str]:
    """The names of the two folders above a file on this machine, if its own ends in a number."""
    stem = os.path.basename(path).lstrip(".").split(".")[0]
    if is_remote(path) or not stem[-1:].isdigit():
        return []
    return folders_above(Path(path))


def _refuse_folder(path: str, folders: Mapping[str, Sequence[str]]) -> None:
    """InputError for one of `folders`, whose files would be read as documents."""
    for what, signs in folders.items():
        if not is_remote(path) and all(glob.glob(os.path.join(glob.escape(path), sign)) for sign in signs):
            raise InputError(f"{path}: {what}, not documents; give the files or folders of the text itself")


def _file_in_folder(spec: InputSpec, path: str) -> InputFile:
    root = spec.path.rstrip("/")
    name = path.removeprefix(root).lstrip("/") if path.startswith(f"{root}/") else os.path.basename(path)
    folder = os.path.basename(root if is_remote(root) else os.path.abspath(root))
    *above, _ = name.split("/")
    is_text = not reader_of(path, in_folder=True)
    domain = [*above, folder][0] if is_text else domain_from_name(name, [*reversed(above), folder])
    name, domain = as_utf8(name), as_utf8(domain)
    return InputFile(path, name, spec.name or domain, spec.weight, in_folder=True, size=size_of(path))


def _paths_of(spec: InputSpec) -> list[str]:
    path = saved_folder(spec.path) or spec.path
    return [path] if is_data_set(path) else files_at(path) or [path]


def _state(path: str) -> State:
    if is_data_set(path):
        return {"revision": revision(path)}
    try:
        return fingerprint(path)
    except OSError as error:
        return {"unreadable": type(error).__name__}  # reported when it is read


def _hash(path: str) -> str:
    try:
        return file_hash(Path(local_path(path)))
    except OSError as error:
        return digest({"unreadable": type(error).__name__})


def _is_local(path: str) -> bool:
    return not is_remote(path) and not is_data_set(path)


def _exists(path: str) -> bool:
    """Whether a file of this machine has this name, or one that matches it as a pattern."""
    path = local_path(path)
    return os.path.exists(path) or any(glob.iglob(path, recursive=True))
