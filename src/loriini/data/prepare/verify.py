"""Checks that a corpus is still what was written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from loriini.common.errors import InputError, OneLineError, is_system_error
from loriini.common.folders import MANIFEST
from loriini.common.progress import Advance, no_progress, progress, warn
from loriini.data.jobs.artifact import Artifact, check_unused, file_hash, load_artifact, read_manifest
from loriini.data.prepare.stages import STAGES


def verify(out: Path) -> int:
    """Read every file of every stage of the corpus `out`; returns the number of files.

    Raises InputError for a stage that is absent or not the one that the corpus's manifest records, for the
    first file that differs from its stage's manifest, and where there is no stage.
    """
    recorded = (finished(out) or {"stages": {}})["stages"]
    stages = load_stages(out)
    check_recorded(out, recorded)
    if not stages:
        raise InputError(f"{out}: no corpus here; give DIR/NAME of `prepare`")
    files = sum(len(artifact.files) for artifact in stages.values())
    with progress("files read", files) as advance:
        for artifact in stages.values():
            check_files(out, artifact, advance)
    for absent in sorted(recorded.keys() - stages.keys()):
        raise InputError(f"{out / absent}: is absent; the command that made the corpus makes it again")
    return files


def finished(out: Path) -> dict[str, Any] | None:
    """The manifest of a finished corpus; None for any other folder. InputError for a damaged one."""
    return read_manifest(out / MANIFEST, ("settings", "stages", "shared_instance_cosine"))


def load_stages(out: Path) -> dict[str, Artifact]:
    """The finished stages of a corpus; InputError for other files where a stage belongs."""
    folders = [out / name for name in STAGES]
    for folder in folders:
        check_unused(folder)
    return {folder.name: load_artifact(folder) for folder in folders if (folder / MANIFEST).exists()}


def check_files(out: Path, artifact: Artifact, advance: Advance = no_progress) -> None:
    """InputError for the first file of a stage that is not what was written."""
    for file, expected in artifact.files.items():
        try:
            found = file_hash(artifact.path(file))
        except OSError:
            found = None
        if found != expected:
            raise damaged(out, artifact.folder.name, f"{file} is not what was written")
        advance()


def check_recorded(out: Path, recorded: Mapping[str, Any]) -> None:
    """InputError for a stage whose counts or files are not those that the corpus's manifest recorded."""
    for name in recorded:
        if (out / name / MANIFEST).exists():
            artifact = load_artifact(out / name)
            if recorded[name] != {"counts": artifact.counts, "files": artifact.files}:
                raise damaged(out, name, f"it is not the one that {out / MANIFEST} records")


@contextmanager
def explained_damage(out: Path) -> Iterator[None]:
    """Turn an error that a damaged file of the corpus `out` caused into the InputError of `verify`.

    Reading every file can take hours: it is done, with a warning, only after an error that is not explained
    already and does not come from the system.
    """
    try:
        yield
    except Exception as error:
        of_place = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | IsADirectoryError)
        if not (isinstance(error, OneLineError) or is_system_error(error) or of_place):
            reason = shorten(f"{type(error).__name__}: {error}", 200)
            warn(f"{out}: checking whether its files are damaged, because of {reason}")
            verify(out)
        raise


def damaged(out: Path, name: str, what: str) -> InputError:
    """The error for a damaged stage of the corpus `out`: what is wrong, and which folders to remove.

    These are the stage and all that depend on it.
    """
    stale = {name}
    for stage, needs in STAGES.items():
        if stale.intersection(needs):
            stale.add(stage)
    there = [stage for stage in STAGES if stage in stale and (out / stage).exists()]
    return InputError(
        f"{out / name}: {what}; remove the folders {', '.join(there)} and make the corpus again"
    )
