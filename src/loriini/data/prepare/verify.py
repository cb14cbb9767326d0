"""Checks that a corpus is still what was written."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import zstandard

from loriini.common.errors import InputError, OneLineError, is_out_of_memory
from loriini.common.progress import Advance, no_progress, progress, warn
from loriini.data.jobs.artifact import (
    BYTES_AT_ONCE,
    MANIFEST,
    Artifact,
    check_unused,
    file_hash,
    load_artifact,
    read_manifest,
)
from loriini.data.prepare.stages import STAGES, imbalances

CORPUS_PARTS = ("settings", "stages", "shared_instance_cosine")
"""Keys of a corpus's manifest that are objects."""
SIGNS_OF_DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    FileNotFoundError,
    IsADirectoryError,
    zstandard.ZstdError,
)
"""What reading a damaged file can raise; errors of permissions or the network are not among them."""
FROM_WORKER = re.compile(
    r"^[\w.]*((Value|Decode|Type|Index|Key|Lookup|Overflow|ZeroDivision|EOF|FileNotFound|IsADirectory|Zstd)"
    r"Error|ArrowInvalid)\b.*",
    re.MULTILINE,
)
"""The same in the traceback of a task, which is all that a worker process sends of its error."""


def verify(out: Path) -> int:
    """Read every file of every stage of the corpus `out`; returns the number of files.

    Raises InputError for the first file that differs from its stage's manifest, for a stage that is absent or
    was built from other stages, for counts that do not add up, and where there is no stage.
    """
    manifest = read_manifest(out / MANIFEST, CORPUS_PARTS)
    if manifest:
        check_recorded(out, manifest["stages"])
    stages = [stage for stage in STAGES if (out / stage.name).exists()]
    if not stages:
        raise InputError(f"{out}: no corpus here; give DIR/NAME of `prepare`")
    here = {stage.name for stage in stages}
    if absent := sorted((manifest["stages"] if manifest else {}).keys() - here):
        raise _absent(out / absent[0])
    artifacts = {stage.name: load_artifact(out / stage.name) for stage in stages}
    files = [(name, file) for name, artifact in artifacts.items() for file in artifact.files]
    present = [path for name, file in files if (path := out / name / file).exists()]
    blocks = sum(-(-path.stat().st_size // BYTES_AT_ONCE) for path in present)
    with progress("MiB read", blocks) as advance:
        for name, file in files:
            if _hash(out / name / file, advance) != artifacts[name].files[file]:
                raise damaged(out, name, f"{file} is not what was written")
    for stage in stages:
        for source in stage.needs:
            expected = artifacts[stage.name].inputs.get(source)
            if expected and source not in artifacts:
                raise _absent(out / source)
            if expected and expected != artifacts[source].digest:
                raise damaged(out, stage.name, f"it was made from other {source} than those here")
    for name, message in imbalances(artifacts):
        raise damaged(out, name, message)
    return len(files)


def _absent(stage: Path) -> InputError:
    return InputError(f"{stage}: is absent; the command that made the corpus makes it again")


def check_stages(out: Path) -> None:
    """InputError for other files where a stage belongs, and for a manifest that cannot be read."""
    read_manifest(out / MANIFEST, CORPUS_PARTS)
    for stage in STAGES:
        check_unused(out / stage.name)
        if (out / stage.name / MANIFEST).exists():
            load_artifact(out / stage.name)


def check_files(out: Path, artifact: Artifact) -> None:
    """InputError for the first file of a stage that is not what was written."""
    for file, expected in artifact.files.items():
        if _hash(artifact.path(file), no_progress) != expected:
            raise damaged(out, artifact.folder.name, f"{file} is not what was written")


def check_recorded(out: Path, recorded: Mapping[str, Any]) -> None:
    """InputError for a stage whose counts or files are not those that the corpus's manifest recorded."""
    for stage in STAGES:
        if (out / stage.name / MANIFEST).exists():
            artifact = load_artifact(out / stage.name)
            if recorded.get(stage.name) != {"counts": artifact.counts, "files": artifact.files}:
                raise damaged(out, stage.name, f"it is not the one that {out / MANIFEST} records")


@contextmanager
def explained_damage(out: Path) -> Iterator[None]:
    """Turn an error that a damaged file of the corpus `out` caused into the InputError of `verify`.

    Reading every file can take hours: it is done only after an error that damage can cause, with a warning.
    """
    try:
        yield
    except Exception as error:
        if reason := _sign_of_damage(error):
            warn(f"{out}: checking whether its files are damaged, because of {shorten(reason, 200)}")
            verify(out)
        raise


def _sign_of_damage(error: Exception) -> str | None:
    """The error's name and message if a damaged file can be its cause."""
    if isinstance(error, OneLineError) or is_out_of_memory(error):
        return None
    if isinstance(error, SIGNS_OF_DAMAGE):
        return f"{type(error).__name__}: {error}"
    match = FROM_WORKER.search(str(error)) if type(error) is RuntimeError else None
    return match and match[0]


def damaged(out: Path, name: str, what: str) -> InputError:
    """The error for a damaged stage of the corpus `out`: what is wrong, and which folders to remove.

    These are the stage and all that depend on it.
    """
    stale = {name}
    for stage in STAGES:
        if stale.intersection(stage.needs):
            stale.add(stage.name)
    there = [stage.name for stage in STAGES if stage.name in stale and (out / stage.name).exists()]
    return InputError(
        f"{out / name}: {what}; remove the folders {', '.join(there)} and make the corpus again"
    )


def _hash(path: Path, advance: Advance) -> str | None:
    """SHA-256 of a file's bytes; None when it cannot be read."""
    try:
        return file_hash(path, advance)
    except OSError:
        return None
