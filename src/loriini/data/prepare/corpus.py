"""A corpus on disk: its stages and its manifest, opening it, and checks that it is still what was written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from loriini.common.errors import InputError, OneLineError, is_system_error
from loriini.common.folders import MANIFEST, kind_of
from loriini.common.progress import Advance, no_progress, progress, warn
from loriini.data.jobs.artifact import Artifact, check_replaceable, file_hash, load_artifact, read_manifest
from loriini.data.prepare.tokenized.instances import Instances, open_instances
from loriini.data.prepare.tokenized.tokens import Tokens, open_tokens

STAGES = {
    "documents": (),
    "tokenizer": ("documents",),
    "tokens": ("documents", "tokenizer"),
    "embeddings": ("documents",),
    "neighbors": ("embeddings",),
    "duplicates": ("documents", "neighbors"),
    "heldout": ("documents", "duplicates"),
    "order": ("tokens", "neighbors", "duplicates", "heldout"),
    "instances": ("tokens", "order"),
}
"""The stages in the order in which they are built, each with the stages that it is built from."""


@dataclass(frozen=True)
class Corpus:
    """A finished corpus, mapped from disk."""

    folder: Path
    instances: Instances
    tokens: Tokens
    tokenizer: Path
    """The tokenizer's folder, for `transformers.AutoTokenizer`."""
    manifest: dict[str, Any]

    @property
    def counts(self) -> dict[str, dict[str, Any]]:
        """What each stage counted."""
        return {name: stage["counts"] for name, stage in self.manifest["stages"].items()}


def open_corpus(out: str | Path) -> Corpus:
    """Open a finished corpus; InputError when it is absent, unfinished or damaged.

    The manifests, the sizes of the arrays and the tokenizer are checked. `verify` reads every file.
    """
    out = Path(out)
    manifest = corpus_manifest(out)
    if manifest is None:
        inside = sorted(path.parent.name for path in out.glob(f"*/{MANIFEST}") if is_corpus(path.parent))
        held = f"give the folder of a corpus in it: {', '.join(inside)}"
        remedy = held if inside else "give DIR/NAME of `loriini prepare NAME --out DIR`"
        why = kind_of(out) or f"{MANIFEST} is absent"
        raise InputError(f"{out}: no finished corpus here ({why}); {remedy}")
    names = ("tokenizer", "tokens", "instances")
    tokenizer, tokens, instances = (load_artifact(out / name) for name in names)
    check_files(out, tokenizer)
    check_recorded(out, manifest["stages"])
    try:
        with explained_damage(out):
            return Corpus(out, open_instances(instances), open_tokens(tokens), tokenizer.folder, manifest)
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        raise InputError(
            f"{out}: cannot be opened ({error!r}); remove the folder and make it again"
        ) from error


def verify(out: Path) -> int:
    """Read every file of every stage of the corpus `out`; returns the number of files.

    Raises InputError for a stage that is absent or not the one that the corpus's manifest records, and for
    the first file that differs from its stage's manifest.
    """
    recorded = (corpus_manifest(out) or {"stages": {}})["stages"]
    stages = load_stages(out)
    check_recorded(out, recorded)
    files = sum(len(artifact.files) for artifact in stages.values())
    with progress("files read", files) as advance:
        for artifact in stages.values():
            check_files(out, artifact, advance)
    for absent in sorted(recorded.keys() - stages.keys()):
        raise InputError(f"{out / absent}: is absent; the command that made the corpus makes it again")
    return files


def corpus_manifest(out: Path) -> dict[str, Any] | None:
    """The manifest of a finished corpus; None for any other folder. InputError for a damaged one."""
    return read_manifest(out / MANIFEST, ("settings", "stages", "shared_instance_cosine"))


def manifest_of(settings: Mapping[str, Any], stages: Mapping[str, Artifact]) -> dict[str, Any]:
    """A corpus's manifest: its settings, and every stage's counts and file hashes."""
    described = {name: {"counts": stage.counts, "files": stage.files} for name, stage in stages.items()}
    return {"settings": settings, "stages": described}


def is_corpus(folder: Path) -> bool:
    """Whether a folder has the stages that training reads, even if the corpus is not finished."""
    return all((folder / name / MANIFEST).exists() for name in ("tokens", "instances"))


def load_stages(out: Path) -> dict[str, Artifact]:
    """The finished stages of a corpus; InputError for other files where a stage belongs."""
    folders = [out / name for name in STAGES]
    for folder in folders:
        check_replaceable(folder)
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
        is_absent = isinstance(error, FileNotFoundError | IsADirectoryError)
        is_access_error = isinstance(error, OSError) and not is_absent
        if not (isinstance(error, OneLineError) or is_system_error(error) or is_access_error):
            reason = shorten(f"{type(error).__name__}: {error}", 200)
            warn(f"{out}: checking whether its files are damaged, because of {reason}")
            verify(out)
        raise


def damaged(out: Path, name: str, what: str) -> InputError:
    """The error for a damaged stage of the corpus `out`: what is wrong, and which folders to remove.

    The folders are those of the stage and of every stage that depends on it.
    """
    stale = {name}
    for stage, needs in STAGES.items():
        if stale.intersection(needs):
            stale.add(stage)
    there = [stage for stage in STAGES if stage in stale and (out / stage).exists()]
    return InputError(
        f"{out / name}: {what}; remove the folders {', '.join(there)} and make the corpus again"
    )
