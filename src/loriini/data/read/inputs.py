"""Inputs as the user names them, the files behind them, and what identifies their contents."""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loriini.common.errors import InputError
from loriini.common.folders import MANIFEST, RUN
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
from loriini.data.read.names import domain_from_name, folders_above
from loriini.data.read.records import no_documents

HASHED_BYTES = 1 << 30
"""Inputs of at most this total size are identified by their bytes, larger ones by sizes and mtimes."""
DATA_SET_METADATA = ("dataset_info.json", "dataset_dict.json", "state.json")
"""Files that the datasets library writes next to the Arrow files of a saved data set."""
OWN_FOLDERS = {
    "a prepared corpus": (MANIFEST, f"instances/{MANIFEST}"),
    "the folder of a run": (RUN, "metrics.jsonl"),
    "the folder of a model": ("config.json", "*.safetensors"),
}
"""Folders that commands wrote, and the files by which they are recognized."""


@dataclass(frozen=True)
class InputFile:
    """A file, or a part of one, which can be read independently of the others."""

    path: str
    name: str
    """Path inside the input; the ids of documents without an id begin with it."""
    domain: str
    """The domain of documents without one."""
    in_folder: bool = False
    """Whether the file was found in a folder, not given by name."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The file's `fingerprint` when it was found: values that change when the file does."""
    span: Span | None = None
    """A part of a plain file of JSON lines."""

    @property
    def size(self) -> int | None:
        """Bytes on disk; None if unknown."""
        size = str(self.state.get("size", ""))
        return int(size) if size.isdigit() else None

    def place(self, number: int) -> str:
        """Where record `number` is in the file: ":7", or "@BYTE:7" in a part of the file that begins at BYTE.

        "" for 0, the file as a whole.
        """
        start = self.span[0] if self.span else 0
        return f"@{start}:{number}" if number and start else f":{number}" if number else ""


def parse_input(text: str | Path) -> tuple[str | None, str]:
    """NAME and PATH of an input `[NAME=]PATH`: a path, a URL, or a pattern of these.

    Text that is the path of an existing file or folder, or a pattern that matches some, has no NAME. PATH may
    begin with `~`, which shells leave as it is after `NAME=`.
    """
    whole = str(text)
    if not whole:
        raise InputError("an input is empty; give a path")
    named = None if _exists(whole) else re.fullmatch(r"([\w.-]+)=(.+)", whole, re.DOTALL)
    name, path = (named[1], named[2]) if named else (None, whole)
    return name, local_path(os.path.expanduser(path))


def absolute_input(text: str | Path) -> str:
    """The input in a form that holds in any working folder: a path on this machine is made absolute."""
    name, path = parse_input(text)
    if is_remote(path):
        return str(text)
    return f"{name}={os.path.abspath(path)}" if name else os.path.abspath(path)


def check_inputs(inputs: Sequence[str], out: Path) -> None:
    """InputError for an input that contains the corpus `out` or lies in it: its own files would be read."""
    out = Path(os.path.realpath(out))
    for _, path in map(parse_input, inputs):
        for match in () if is_remote(path) else matching_paths(path):
            real = Path(os.path.realpath(match))
            if out.is_relative_to(real) or real.is_relative_to(out):
                raise InputError(f"{out}: lies inside the input {path}, or holds it; choose another --out")


def input_files(inputs: Sequence[str | Path]) -> list[InputFile]:
    """The files of `inputs`, in order; InputError for a missing input."""
    return [file for name, path in map(parse_input, inputs) for file in _files_of(name, path)]


def input_identity(inputs: Sequence[str | Path]) -> dict[str, str]:
    """The `identity_of` the files of `inputs`; InputError if an input is missing."""
    return identity_of(input_files(inputs))


def identity_of(files: Sequence[InputFile]) -> dict[str, str]:
    """Map the path of every file to a digest that changes when its contents do.

    If all local files together have at most HASHED_BYTES, it is the SHA-256 of the file's bytes, otherwise of
    its size and mtime; for a remote file, of its metadata such as the ETag.
    """
    sizes = {file.path: file.size or 0 for file in files if not is_remote(file.path)}
    hashed = sizes if sum(sizes.values()) <= HASHED_BYTES else {}
    return {file.path: _hash(file) if file.path in hashed else digest(file.state) for file in files}


def _files_of(name: str | None, given: str) -> Iterator[InputFile]:
    """The files behind a path; their domain is `name`, if given."""
    for path in matching_paths(given):
        _refuse_own_folder(path)
        found = files_at(path)
        if found is None:
            file = as_utf8(os.path.basename(without_query(path).rstrip("/")))
            domain = name or domain_from_name(file, _folders_of_numbered(path))
            yield InputFile(path, file, domain, state=fingerprint(path))
            continue
        if not found:
            raise no_documents(path, {})
        if any(suffixes(file)[0] == ".arrow" for file in found):
            found = [file for file in found if os.path.basename(file) not in DATA_SET_METADATA]
        yield from (_file_in_folder(name, path, file) for file in found)


def _folders_of_numbered(path: str) -> list[str]:
    """The names of the two folders above a local file whose own name ends in a number; else []."""
    stem = os.path.basename(path).lstrip(".").split(".")[0]
    return folders_above(Path(path)) if stem[-1:].isdigit() and not is_remote(path) else []


def _refuse_own_folder(path: str) -> None:
    """InputError for a folder that a command wrote, whose files would be read as documents."""
    for what, signs in OWN_FOLDERS.items():
        if not is_remote(path) and all(glob.glob(os.path.join(glob.escape(path), sign)) for sign in signs):
            raise InputError(f"{path}: {what}, not documents; give the files or folders of the text itself")


def _file_in_folder(given: str | None, folder: str, path: str) -> InputFile:
    root = folder.rstrip("/")
    name = path.removeprefix(root).lstrip("/") if path.startswith(f"{root}/") else os.path.basename(path)
    folder = os.path.basename(root if is_remote(root) else os.path.abspath(root))
    *above, _ = name.split("/")
    is_text = not reader_of(path, in_folder=True)
    domain = [*above, folder][0] if is_text else domain_from_name(name, [*reversed(above), folder])
    domain = given or as_utf8(domain)
    return InputFile(path, as_utf8(name), domain, in_folder=True, state=fingerprint(path))


def _hash(file: InputFile) -> str:
    try:
        return file_hash(Path(file.path))
    except OSError as error:
        return digest({"unreadable": type(error).__name__})


def _exists(path: str) -> bool:
    """Whether `path` is a file or folder of this machine, or a pattern that matches one."""
    path = local_path(path)
    return os.path.exists(path) or any(glob.iglob(path, recursive=True))
