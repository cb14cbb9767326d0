"""Finished stages: a folder of arrays and a manifest, written whole or not at all.

A stage writes its files into a temporary sibling folder; they are hashed, synced to disk and renamed into
place together with `manifest.json`. A folder with a manifest is therefore complete, and a stage whose
settings and inputs are unchanged is not done again. What its tasks have finished (`loriini.jobs.tasks`) lies
in another sibling until then, and is kept for the next attempt if that has the same settings and inputs.
Both siblings have a digest of these in their names: a task of other settings that still runs somewhere
cannot write into them.
"""

import errno
import glob
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loriini.atomic import atomic, write_json
from loriini.errors import InputError

MANIFEST = "manifest.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNNUMBERED = rf"\d+ requested and \d+ written|\(os error ({'|'.join(map(str, FULL))})\)"
"""What numpy and libraries in Rust say of these, in errors without a number."""
DIGITS = 16
CLAIM = "claim.json"
"""An unfinished stage's settings and inputs, beside its parts; parts without it are nobody's."""


@dataclass(frozen=True)
class Artifact:
    """A finished stage: its `folder` and what its manifest says."""

    folder: Path
    settings: dict[str, Any]
    inputs: dict[str, str]
    counts: dict[str, Any]
    files: dict[str, str]

    @property
    def digest(self) -> str:
        """Hash of the contents (not of the settings): equal arrays give equal digests."""
        return digest(self.files)

    def path(self, name: str) -> Path:
        """The path of one of the artefact's files."""
        return self.folder / name


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
    """Return the artefact at `folder`, making it with `write(temporary_folder) -> counts` when it is absent.

    `settings` and `inputs` (names to digests) are JSON values that determine the contents. Raises InputError
    when a finished artefact of other settings or inputs is in the way: nothing is overwritten. With
    `named_parts` what tasks have finished is kept for other settings and inputs, too: then the names of tasks
    must tell what they were made of.
    """
    wanted = {"settings": json.loads(json.dumps(settings)), "inputs": dict(inputs)}
    claim: dict[str, Any] = {} if named_parts else wanted
    temporary = folder.with_name(f".{folder.name}.{digest(claim)}.unfinished")
    if (folder / MANIFEST).exists():
        artifact = load_artifact(folder)
        for part, values in wanted.items():
            there = getattr(artifact, part)
            if there != values:
                changed = sorted(k for k in {*there, *values} if there.get(k) != values.get(k))
                raise InputError(
                    f"{folder}: was made with other {part} ({first_few(changed)}); "
                    "choose another output folder or remove this one"
                )
        _discard_all(folder)
        return artifact
    with full_disk_as_input_error(folder), atomic(folder, temporary):
        _discard_all(folder, but=parts_folder(temporary))
        temporary.mkdir(parents=True)
        _claim(parts_folder(temporary), claim)
        counts = write(temporary)
        files = {p.name: file_hash(p) for p in sorted(temporary.iterdir())}
        write_json(temporary / MANIFEST, {**wanted, "counts": counts, "files": files})
        shutil.rmtree(folder, ignore_errors=True)
    _discard_all(folder)
    return load_artifact(folder)


def first_few(names: list[str], shown: int = 5) -> str:
    """The first of some names, and how many more there are."""
    more = [f"and {len(names) - shown} more"] if len(names) > shown else []
    return ", ".join([*names[:shown], *more])


def parts_folder(temporary: Path) -> Path:
    """Where the finished tasks of the stage lie that is being written into `temporary`."""
    return temporary.with_suffix(".parts")


@contextmanager
def full_disk_as_input_error(folder: Path) -> Iterator[None]:
    """Turn a full disk into an InputError that says what to do."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise InputError(
            f"{folder}: the disk is full (or a quota, or ulimit -f); make room and rerun, "
            "what is finished is kept"
        ) from error


def is_disk_full(error: Exception) -> bool:
    """Whether no more can be written: a full disk or quota, or a file as large as may be."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    return re.search(UNNUMBERED, str(error)) is not None


def load_artifact(folder: Path) -> Artifact:
    """Read a finished artefact; InputError when it is absent, unfinished or unreadable."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return Artifact(
            folder, manifest["settings"], manifest["inputs"], manifest["counts"], manifest["files"]
        )
    except FileNotFoundError:
        raise InputError(
            f"{folder}: no finished artefact here ({MANIFEST} is absent); run the stage first"
        ) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(
            f"{folder / MANIFEST}: not a readable manifest ({error}); remove the folder"
        ) from None


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _claim(parts: Path, wanted: dict[str, Any]) -> None:
    """Keep the parts of an earlier attempt, if they are whole."""
    if not (parts / CLAIM).exists():
        _discard(parts)
        parts.mkdir()
        write_json(parts / CLAIM, wanted)


def _discard_all(folder: Path, but: Path | None = None) -> None:
    """Remove what attempts at the stage `folder` left beside it, of any settings."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * DIGITS}.*"):
        if left != but:
            _discard(left)


def _discard(parts: Path) -> None:
    """Remove parts, the claim first: what is left if this is interrupted belongs to nobody."""
    (parts / CLAIM).unlink(missing_ok=True)
    shutil.rmtree(parts, ignore_errors=True)
