"""Inputs as the user names them, the files behind them, and what identifies their contents."""

import glob
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError
from loriini.data.jobs.artifact import digest, file_hash
from loriini.data.read.compressed import Span, suffixes
from loriini.data.read.files import (
    as_utf8,
    files_at,
    fingerprint,
    is_remote,
    local_path,
    matching_paths,
    without_query,
)
from loriini.data.read.formats import reader_of
from loriini.data.read.hub import PREFIX, is_data_set, revision, shard_count
from loriini.data.read.names import domain_from_name, folders_above
from loriini.data.read.records import no_documents

HASHED_BYTES = 1 << 30
"""Inputs of at most this total size are identified by their bytes, larger ones by sizes and mtimes."""
DATA_SET_METADATA = ("dataset_info.json", "dataset_dict.json", "state.json")
"""Files that the datasets library writes next to the Arrow files of a saved data set."""
OWN_FOLDERS = {
    "a prepared corpus": ("manifest.json", "instances/manifest.json"),
    "the folder of a run": ("run.json", "metrics.jsonl"),
    "the folder of a model": ("config.json", "*.safetensors"),
}
"""Folders that commands wrote, and the files by which they are recognized."""


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
    state: Mapping[str, Any] = field(default_factory=dict)
    """What changes when the file does (`fingerprint`), as it was when the file was found."""
    shard: tuple[int, int] | None = None
    """(i, n) for shard i of n of a data set."""
    span: Span | None = None
    """A part of a plain file of JSON lines."""
    row_groups: tuple[int, int] | None = None
    """[start, stop) for a part of a parquet file: its row groups of these numbers."""

    @property
    def size(self) -> int | None:
        """Bytes on disk; None if unknown."""
        size = str(self.state.get("size", ""))
        return int(size) if size.isdigit() else None

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
    return InputSpec(local_path(os.path.expanduser(path)), name, share)


def absolute_input(text: str | Path) -> str:
    """The same input for any working folder: a path on this machine is made absolute."""
    spec = parse_input(text)
    if not _is_local(spec.path):
        return str(text)
    name = f"{spec.name}=" if spec.name else ""
    weight = f":{spec.weight!r}" if spec.weight != 1 else ""
    return f"{name}{os.path.abspath(spec.path)}{weight}"


def check_inputs(inputs: Sequence[str], out: Path) -> None:
    """InputError for an input that contains the corpus `out`, or lies in it: it would be read as well."""
    out = Path(os.path.realpath(out))
    for path in (parse_input(given).path for given in inputs):
        for match in matching_paths(path) if _is_local(path) else ():
            real = Path(os.path.realpath(match))
            if out.is_relative_to(real) or real.is_relative_to(out):
                raise InputError(f"{out}: lies inside the input {path}, or holds it; choose another --out")


def input_files(inputs: Sequence[str | Path]) -> list[InputFile]:
    """The files and shards of `inputs`, in order; InputError for a missing input."""
    return [file for text in inputs for spec in _matching(text) for file in _files_of(spec)]


def input_identity(inputs: Sequence[str | Path]) -> dict[str, str]:
    """`identity_of` the files of `inputs`; InputError when an input is missing."""
    return identity_of(input_files(inputs))


def identity_of(files: Sequence[InputFile]) -> dict[str, str]:
    """Map the path of every file to a digest that changes when its contents do.

    If all files together are at most HASHED_BYTES, it is the SHA-256 of the file's bytes, otherwise of its
    size and mtime; for a remote file, of its metadata such as the ETag; for a data set, of its commit.
    """
    sizes = {file.path: file.size or 0 for file in files if _is_local(file.path)}
    hashed = sizes if sum(sizes.values()) <= HASHED_BYTES else {}
    return {file.path: _hash(file) if file.path in hashed else digest(file.state) for file in files}


def is_changed(file: InputFile) -> bool:
    """Whether a file has changed since it was found; InputError for one that cannot be reached.

    A server reports more about a single file than in a folder's listing, so only what it reported both times
    is compared. A data set is read at the commit that was found.
    """
    if file.shard:
        return False
    now = _state(file.path, anew=True)
    if is_remote(file.path):
        return any(now[key] != file.state[key] for key in now.keys() & file.state.keys())
    return now != file.state


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
        name = spec.path.removeprefix(PREFIX).split(":")[0].split("/")[-1]
        whole = InputFile(spec.path, name, spec.name or name, spec.weight, state={"revision": commit})
        return [replace(whole, name=f"{name}-{i}", shard=(i, count)) for i in range(count)]
    _refuse_own_folder(spec.path)
    paths = files_at(spec.path)
    if paths is None:
        name = as_utf8(os.path.basename(without_query(spec.path).rstrip("/")))
        domain = spec.name or domain_from_name(name, _folders_of_numbered(spec.path))
        return [InputFile(spec.path, name, domain, spec.weight, state=_state(spec.path))]
    if not paths:
        raise no_documents(spec.path, {})
    if any(suffixes(path)[0] == ".arrow" for path in paths):
        paths = [path for path in paths if os.path.basename(path) not in DATA_SET_METADATA]
    return [_file_in_folder(spec, path) for path in paths]


def _folders_of_numbered(path: str) -> list[str]:
    """The names of the two folders above a file on this machine, if its own ends in a number."""
    stem = os.path.basename(path).lstrip(".").split(".")[0]
    return folders_above(Path(path)) if stem[-1:].isdigit() and not is_remote(path) else []


def _refuse_own_folder(path: str) -> None:
    """InputError for a folder that a command wrote, whose files would be read as documents."""
    for what, signs in OWN_FOLDERS.items():
        if not is_remote(path) and all(glob.glob(os.path.join(glob.escape(path), sign)) for sign in signs):
            raise InputError(f"{path}: {what}, not documents; give the files or folders of the text itself")


def _file_in_folder(spec: InputSpec, path: str) -> InputFile:
    root = spec.path.rstrip("/")
    name = path.removeprefix(root).lstrip("/") if path.startswith(f"{root}/") else os.path.basename(path)
    folder = os.path.basename(root if is_remote(root) else os.path.abspath(root))
    *above, _ = name.split("/")
    is_text = not reader_of(path, in_folder=True)
    domain = [*above, folder][0] if is_text else domain_from_name(name, [*reversed(above), folder])
    domain = spec.name or as_utf8(domain)
    return InputFile(path, as_utf8(name), domain, spec.weight, in_folder=True, state=_state(path))


def _state(path: str, anew: bool = False) -> dict[str, Any]:
    try:
        return fingerprint(path, anew)
    except OSError as error:
        return {"unreadable": type(error).__name__}  # reported when it is read


def _hash(file: InputFile) -> str:
    try:
        return digest(file.state) if "unreadable" in file.state else file_hash(Path(file.path))
    except OSError as error:
        return digest({"unreadable": type(error).__name__})


def _is_local(path: str) -> bool:
    return not is_remote(path) and not is_data_set(path)


def _exists(path: str) -> bool:
    """Whether a file of this machine has this name, or one that matches it as a pattern."""
    path = local_path(path)
    return os.path.exists(path) or any(glob.iglob(path, recursive=True))
