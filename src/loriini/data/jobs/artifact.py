"""Artifacts: folders of files with a manifest, written whole or not at all.

A stage writes its files into a temporary folder next to the artifact; they are hashed, synced to disk and
renamed into place together with `manifest.json`. A folder with a manifest is therefore complete, and a stage
with the same settings and inputs is not run again. A folder that holds files but no manifest was not written
by us, and is never replaced.

The results of a stage's finished tasks (`loriini.data.jobs.tasks`) are kept in a second folder next to the
artifact, for the next attempt with the same settings and inputs. The names of the temporary folder and of
this one contain a digest of the settings and inputs, so that an attempt with others neither reads nor writes
there. With `named_parts`, where a task's name identifies its result, this digest is the same for all.
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loriini.common.atomic import UNFINISHED, atomic, discard, write_json
from loriini.common.errors import InputError, first_few
from loriini.common.folders import MANIFEST
from loriini.common.json_file import read_object

DIGITS = 16
PARTS = ("settings", "inputs", "counts", "files")
OWN_HASH = "manifest"
"""Key in a manifest of the hash of all its other values."""
DAMAGED = "choose another folder, or remove this one if it is a damaged corpus, and make it again"
"""The remedy for a manifest that was changed after it was written, or cannot be read."""


class OtherContents(InputError):
    """A finished artifact was made with other settings or inputs, which `how` names."""

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(f"{folder}: was made with {how}; choose another output folder or remove this one")
        self.how = how


@dataclass(frozen=True)
class Artifact:
    """A finished artifact: its `folder` and the contents of its manifest.

    `files` maps file names to SHA-256 hashes, `inputs` names of other artifacts or files to digests.
    """

    folder: Path
    settings: dict[str, Any]
    inputs: dict[str, str]
    counts: dict[str, Any]
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """Hash of the files, not of the settings: equal arrays give equal digests."""
        return digest(self.files)

    def path(self, name: str) -> Path:
        return self.folder / name

    def array(self, name: str) -> NDArray[Any]:
        """A NumPy file, mapped into memory, read-only."""
        array: NDArray[Any] = np.load(self.path(name), mmap_mode="r")
        return array


def digest(value: Any) -> str:
    """A short, stable hash of any JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGITS]


def build_artifact(
    folder: Path,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str],
    write: Callable[[Path], dict[str, Any]],
    named_parts: bool = False,
) -> Artifact:
    """Return the artifact at `folder`, created by `write(temporary_folder) -> counts` if it is absent.

    Args:
        settings: JSON values that, with `inputs`, determine the contents; a user's option keeps its name.
        inputs: digests by the names of other artifacts or files.
        write: writes the files and returns the counts for the manifest, JSON values.
        named_parts: reuse the results of finished tasks also with other settings and inputs. The name of a
            task must then identify its result.

    Raises:
        OtherContents: a finished artifact has other settings or inputs. It is left as it is.
        InputError: other files are at `folder`. Nothing is overwritten.
    """
    expected = {"settings": json.loads(json.dumps(settings)), "inputs": dict(inputs)}
    whose = digest({} if named_parts else expected)
    temporary = folder.with_name(f".{folder.name}.{whose}{UNFINISHED}")
    if (folder / MANIFEST).exists():
        artifact = load_artifact(folder)
        for part, values in expected.items():
            if changed := _changed(getattr(artifact, part), values):
                raise OtherContents(folder, f"other {part} ({first_few(sorted(changed))})")
        _discard_all(folder)
        return artifact
    check_replaceable(folder)
    with atomic(folder, temporary):
        _discard_all(folder, but=parts_folder(temporary))
        temporary.mkdir(parents=True)
        parts_folder(temporary).mkdir(exist_ok=True)
        counts = write(temporary)
        files = file_hashes(temporary, sorted(path.name for path in temporary.iterdir()))
        write_manifest(temporary / MANIFEST, {**expected, "counts": counts, "files": files})
    _discard_all(folder)
    return load_artifact(folder)


def link_artifact(artifact: Artifact, folder: Path) -> Artifact:
    """Create the same artifact at `folder`, from hard links to its files or from copies (`link_or_copy`)."""
    with atomic(folder) as temporary:
        temporary.mkdir()
        for name in (*artifact.files, MANIFEST):
            link_or_copy(artifact.path(name), temporary / name)
    return load_artifact(folder)


def check_replaceable(folder: Path) -> None:
    """Raise InputError if anything but an artifact or an empty folder is at `folder`."""
    empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    if os.path.lexists(folder) and not empty and not (folder / MANIFEST).exists():
        raise InputError(
            f"{folder}: holds files that are not a stage of a corpus; move them, or choose another --out"
        )


def parts_folder(temporary: Path) -> Path:
    """The folder of finished tasks for the artifact that is being written into `temporary`."""
    return temporary.with_suffix(".parts")


def load_artifact(folder: Path) -> Artifact:
    """Load a finished artifact; InputError if its manifest is absent (it is not finished) or unreadable."""
    manifest = read_manifest(folder / MANIFEST, PARTS)
    if manifest is None:
        raise InputError(
            f"{folder}: no finished stage of a corpus here ({MANIFEST} is absent); make the corpus again"
        )
    for name, text in {**manifest["files"], **manifest["inputs"]}.items():
        if not isinstance(text, str) or (name in manifest["files"] and name != Path(name).name):
            raise _unreadable(folder / MANIFEST, f"{name} is not a file with its hash")
    return Artifact(folder, *(manifest[part] for part in PARTS))


def write_manifest(path: Path, values: Mapping[str, Any]) -> None:
    """Write a manifest, with its own hash, atomically."""
    write_json(path, {**values, OWN_HASH: digest(values)})


def read_manifest(path: Path, parts: Sequence[str]) -> dict[str, Any] | None:
    """Read a manifest and remove its own hash; None if it is absent.

    Raises InputError if it is unreadable, was changed after it was written, or lacks an object for one of
    the names in `parts`.
    """
    if path.parent.is_file():
        raise InputError(f"{path.parent}: is a file; give a folder that `loriini prepare` made")
    if not path.exists():
        return None
    manifest = read_object(path, DAMAGED)
    if manifest.pop(OWN_HASH, None) != digest(manifest):
        raise _unreadable(path, "it was changed after it was written")
    for name in parts:
        if not isinstance(manifest.get(name), dict):
            raise _unreadable(path, f"{name!r} is absent or not an object")
    return manifest


def _unreadable(path: Path, reason: object) -> InputError:
    return InputError(f"{path}: not a readable manifest ({reason}); {DAMAGED}")


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def new_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """Memory-map a new `.npy` file of zeros, to be written in any order.

    Its space is reserved, so that a full disk raises OSError here. Writing to a page without space would
    kill the process (SIGBUS).
    """
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_hashes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each named file of a folder, by name; several files are read at once."""
    names = list(names)
    with ThreadPoolExecutor() as pool:
        hashes = pool.map(file_hash, (folder / name for name in names))
        return dict(zip(names, hashes, strict=True))


def _changed(there: Mapping[str, Any], here: Mapping[str, Any]) -> set[str]:
    """Names whose values differ; if none do, names present on one side only.

    Some settings exist only with one value of another (`window` with the order "similar"): that one differs.
    """
    common = there.keys() & here.keys()
    return {name for name in common if there[name] != here[name]} or there.keys() ^ here.keys()


def _discard_all(folder: Path, but: Path | None = None) -> None:
    """Remove what earlier attempts at the artifact left next to it, with any settings, except `but`."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * DIGITS}.*"):
        if left != but:
            discard(left)
