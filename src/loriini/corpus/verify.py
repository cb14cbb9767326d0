"""Whether a corpus is still what was written."""

import hashlib
from pathlib import Path

from loriini.errors import InputError
from loriini.jobs.artifact import load_artifact
from loriini.progress import Advance, progress

STAGES = (
    "documents",
    "tokenizer",
    "tokens",
    "embeddings",
    "neighbors",
    "duplicates",
    "order",
    "instances",
)
"""Every stage, those first that others are made of."""
CHUNK = 1 << 20


def verify(out: Path) -> int:
    """Read every file of every stage of the corpus `out` again; returns how many there are.

    Raises InputError for the first that is not what its stage's manifest says, and for a stage that was not
    made of those before it.
    """
    stages = {name: load_artifact(out / name) for name in STAGES if (out / name).exists()}
    files = [(name, file) for name, stage in stages.items() for file in stage.files]
    there = [path for name, file in files if (path := out / name / file).exists()]
    with progress("MiB read", sum(-(-path.stat().st_size // CHUNK) for path in there)) as advance:
        for name, file in files:
            if _hash(out / name / file, advance) != stages[name].files[file]:
                raise _damaged(out, name, f"{file} is not what was written")
    for i, name in enumerate(STAGES):
        for source in STAGES[:i] if name in stages else ():
            made_of = stages[name].inputs.get(source)
            if made_of and (source not in stages or made_of != stages[source].digest):
                raise _damaged(out, name, f"it was not made of the {source} that are here")
    return len(files)


def _hash(path: Path, advance: Advance) -> str | None:
    """SHA-256 of a file's bytes; None when it cannot be read."""
    hashed = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                hashed.update(chunk)
                advance()
    except OSError:
        return None
    return hashed.hexdigest()


def _damaged(out: Path, name: str, told: str) -> InputError:
    later = [stage for stage in STAGES[STAGES.index(name) :] if (out / stage).exists()]
    return InputError(
        f"{out / name}: {told}; remove the folders {', '.join(later)} and make the corpus again"
    )
