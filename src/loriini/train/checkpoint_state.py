"""What the folders of checkpoints record: progress, scores and hashes; which of them are intact, or old."""

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from safetensors import SafetensorError
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from loriini.errors import InputError
from loriini.fields import Bounds, CountOrZero, NotNegative, mismatch
from loriini.jobs.artifact import file_hashes
from loriini.model.saving import check_headers
from loriini.progress import warn

STATE = "state.json"
NAME = r"step-\d{8,}"
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors of a file that is not there, which is damage. Others of the disk (EACCES, EIO) may pass: raised."""

Amounts = tuple[tuple[NotNegative, ...], ...]
"""What each expert of each layer got, (layers, E): units, or their gates."""
Norm = Annotated[float, Bounds(least=0)]


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come; skipped steps are included in all counts."""

    step: int = 0
    """Steps taken."""
    consumed: int = 0
    """Instances read."""
    tokens: int = 0
    """Tokens read."""
    skips: int = 0
    """Steps in a row, up to the last one, that were skipped."""
    amounts: Amounts = ()
    """What each expert got since the last record of every expert, in steps that were not skipped."""
    norms: tuple[Norm, ...] = ()
    """Finite gradient norms of the last steps, as many as the guard against spikes compares with."""


def checkpoints_in(folder: Path) -> list[Path]:
    """The folders of checkpoints, damaged ones too, by their steps; whatever else is there is the user's."""
    found = (path for path in folder.glob("step-*") if re.fullmatch(NAME, path.name) and path.is_dir())
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))


def read_state(path: Path) -> dict[str, Any]:
    """A checkpoint's `state.json`; empty where it is absent or damaged."""
    try:
        state = json.loads((path / STATE).read_text())
    except (*MISSING, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def superseded(written: Path, keep: int, keep_every: int = 0, steady: int = 0) -> list[Path]:
    """The checkpoints to drop, of those up to the one just written.

    Kept are the last `keep`, the best-scored one, those of every `keep_every` steps, and the newest of up to
    `steady` steps. Later ones do not count: they are damaged, or the run would have been resumed from them.
    """
    found = [path for path in checkpoints_in(written.parent) if step_of(path) <= step_of(written)]
    scores = {path: read_state(path).get("score") for path in found}
    scored = [
        (score, path) for path, score in scores.items() if isinstance(score, float) and math.isfinite(score)
    ]
    best = min(scored)[1] if scored else None
    kept = {best, *[path for path in found if 0 < step_of(path) <= steady][-1:]}
    kept |= {path for path in found if keep_every and step_of(path) % keep_every == 0}
    return [path for path in found[:-keep] if path not in kept]


def newest_checkpoint(folder: Path) -> tuple[Path, RunProgress] | None:
    """The newest intact checkpoint and its progress; None where there are no checkpoints.

    Warns of damaged ones, which are passed over. InputError where all are damaged.
    """
    damages: dict[Path, str] = {}
    for path in reversed(checkpoints_in(folder)):
        damage = damage_of(path)
        if damage is None:
            for damaged, why in damages.items():
                warn(f"{damaged}: damaged checkpoint passed over ({why})")
            return path, read_progress(path)
        damages[path] = damage
    if damages:
        listed = "; ".join(f"{path.name}: {why}" for path, why in damages.items())
        raise InputError(
            f"{folder}: no intact checkpoint ({listed}); restore one, or remove the folder to begin again"
        )
    return None


def read_progress(path: Path) -> RunProgress:
    """The progress that a checkpoint records. ValueError for one that does not record its own."""
    values = read_state(path).get("progress")
    if not isinstance(values, dict):
        raise ValueError(f"{STATE} holds no counts")
    values = {"norms": [], **values}  # of earlier versions there are none
    if values.keys() != {field.name for field in fields(RunProgress)}:
        raise ValueError(f"{STATE} has other counts: {', '.join(values)}")
    amounts, norms = tuple(map(tuple, values.pop("amounts"))), tuple(values.pop("norms"))
    if any(mismatch(value, CountOrZero) for value in values.values()):
        raise ValueError(f"{STATE} holds no counts")
    if mismatch(amounts, Amounts) or len(set(map(len, amounts))) > 1:
        raise ValueError(f"{STATE} has amounts that are no numbers by layer and expert")
    if mismatch(norms, tuple[Norm, ...]):
        raise ValueError(f"{STATE} has gradient norms that are no numbers")
    progress = RunProgress(**values, amounts=amounts, norms=norms)
    if path.resolve().name != f"step-{progress.step:08d}":
        raise ValueError(f"{STATE} is of step {progress.step}")
    return progress


def damage_of(path: Path) -> str | None:
    """What is wrong with a checkpoint's files; None if they are intact. OSError where they cannot be read."""
    hashes = read_state(path).get("sha256")
    if not hashes or not isinstance(hashes, dict):
        return f"{STATE} cannot be read"
    try:
        read_progress(path)
        for name, found in file_hashes(path, hashes).items():
            if found != hashes[name]:
                return f"{name} does not match its hash"
        check_headers(path)
        HuggingFaceStorageReader(str(path)).read_metadata()
    except (*MISSING, ValueError, KeyError, TypeError, SafetensorError) as error:
        return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
    return None
