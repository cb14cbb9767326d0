"""What checkpoint folders record (progress, scores, hashes), and which of them are intact or superseded."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from loriini.common.checks import wrong_fields
from loriini.common.errors import InputError
from loriini.common.progress import warn
from loriini.data.jobs.artifact import file_hashes
from loriini.model.weights.saving import readable_safetensors
from loriini.parallel.mesh import on_every_rank, on_first_rank, own_share
from loriini.train.run_progress import RunProgress

STATE = "state.json"
NAME = r"step-\d{8,}"
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors of an absent file, which is damage. Other disk errors (EACCES, EIO) may be temporary: raised."""
DAMAGED = (*MISSING, ValueError, KeyError, TypeError, SafetensorError)
"""Errors of reading a damaged checkpoint."""


class Newest(NamedTuple):
    """The newest intact checkpoint, None if there is none, and what is wrong with later ones."""

    path: Path | None
    damaged: dict[Path, str]


def checkpoints_in(folder: Path) -> list[Path]:
    """Checkpoint folders by step, damaged ones included; other files belong to the user and are ignored."""
    folders = (path for path in folder.glob("step-*") if re.fullmatch(NAME, path.name) and path.is_dir())
    return sorted(folders, key=step_of)


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


def superseded(paths: Sequence[Path], keep: int, keep_every: int = 0) -> list[Path]:
    """Which of `paths`, checkpoints in the order of their steps, to drop.

    Kept are the last `keep`, the one of lowest score, and those of every `keep_every` steps.
    """
    scores = {path: read_state(path).get("score") for path in paths}
    scored = [
        (score, path) for path, score in scores.items() if isinstance(score, float) and math.isfinite(score)
    ]
    best = min(scored)[1] if scored else None
    kept = {best, *(path for path in paths if keep_every and step_of(path) % keep_every == 0)}
    return [path for path in paths[:-keep] if path not in kept]


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest intact checkpoint in a folder, found by this process alone; see `refuse_damaged`."""
    return refuse_damaged(folder, newest_intact(checkpoints_in(folder)))


def refuse_damaged(folder: Path, newest: Newest) -> Path | None:
    """The path of the newest intact checkpoint in a folder; None where there are no checkpoints.

    Warns of damaged ones, which are passed over. InputError where all are damaged.
    """
    if newest.damaged and newest.path is None:
        listed = "; ".join(f"{path.name}: {problem}" for path, problem in newest.damaged.items())
        raise InputError(
            f"{folder}: no intact checkpoint ({listed}); restore one, or remove the folder to begin again"
        )
    for path, problem in newest.damaged.items():
        warn(f"{path}: damaged checkpoint passed over ({problem})")
    return newest.path


def newest_intact_together(paths: Sequence[Path]) -> Newest:
    """`newest_intact` in all processes, each of which hashes a share of a checkpoint's files.

    All take the first process's `paths`, since listings of a shared file system may lag.
    """

    def check(path: Path) -> str | None:
        problems = on_every_rank(lambda: byte_problem(path, own_share))
        problem = next((problem for problem in problems if problem is not None), None)
        return on_first_rank(lambda: header_problem(path)) if problem is None else problem

    return newest_intact(on_first_rank(lambda: paths), check)


def read_progress(path: Path) -> RunProgress:
    """The progress that a checkpoint records. ValueError if it is absent, damaged or of another step."""
    values = read_state(path).get("progress")
    if not isinstance(values, dict) or values.keys() != {field.name for field in fields(RunProgress)}:
        raise ValueError(f"{STATE} holds no counts")
    totals, norms = tuple(map(tuple, values.pop("expert_totals"))), tuple(values.pop("norms"))
    progress = RunProgress(**values, expert_totals=totals, norms=norms)
    for name, _, expected in wrong_fields(progress):
        raise ValueError(f"{STATE}: {name} must be {expected}")
    if len(set(map(len, totals))) > 1:
        raise ValueError(f"{STATE}: expert_totals are not of one number of experts")
    if path.resolve().name != f"step-{progress.step:08d}":
        raise ValueError(f"{STATE} is of step {progress.step}")
    return progress


def problem_of(path: Path) -> str | None:
    """What is wrong with a checkpoint's files; None if they are intact. OSError where they cannot be read."""
    problem = byte_problem(path)
    return header_problem(path) if problem is None else problem


def newest_intact(paths: Sequence[Path], check: Callable[[Path], str | None] = problem_of) -> Newest:
    """The newest of these checkpoints in which `check` finds no problem, and the problems of later ones."""
    damaged: dict[Path, str] = {}
    for path in reversed(paths):
        if (problem := check(path)) is None:
            return Newest(path, damaged)
        damaged[path] = problem
    return Newest(None, damaged)


def byte_problem(path: Path, share: Callable[[list[str]], Sequence[str]] = list) -> str | None:
    """What is wrong with a checkpoint's state, or with the bytes of a share of its files, by their hashes."""
    hashes = read_state(path).get("sha256")
    if not hashes or not isinstance(hashes, dict):
        return f"{STATE} cannot be read"
    try:
        read_progress(path)
        computed = file_hashes(path, share(list(hashes)))
    except DAMAGED as error:
        return message_of(error)
    wrong = next((name for name in computed if computed[name] != hashes[name]), None)
    return f"{wrong} does not match its hash" if wrong else None


def header_problem(path: Path) -> str | None:
    """What is wrong with how a checkpoint's files describe their tensors."""
    try:
        readable_safetensors(path)
        HuggingFaceStorageReader(str(path)).read_metadata()
    except DAMAGED as error:
        return message_of(error)
    return None


def message_of(error: Exception) -> str:
    """An error's message; for a KeyError, whose message is only the key, with its type."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
