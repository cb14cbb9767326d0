"""A run of more or fewer steps that continues from another's checkpoint, as if it had been planned that way.

Both have the same learning rates and the same dense steps up to that checkpoint. With a cosine they never do,
since every rate depends on the number of steps.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loriini.common.atomic import commit, is_unused, write_json, write_text
from loriini.common.errors import InputError
from loriini.common.hub import CHECKPOINTS, RUN
from loriini.data.jobs.artifact import link_files
from loriini.data.jobs.lock import folder_lock
from loriini.parallel.mesh import on_first_rank
from loriini.train.checkpoints.state import check_newest_together, checkpoints_in, first_intact, step_of
from loriini.train.config import PLAN, TrainConfig, read_run
from loriini.train.folder import changed_settings, shared_steps
from loriini.train.optimizer import warmup_steps
from loriini.train.overrides.apply import override, overrides_of
from loriini.train.records.metrics import RECORDS, records_until

BEGUN = f".{RUN}.begun"
"""The settings of a run whose checkpoint and records are still being copied; then it becomes `run.json`."""


def replanned(run: TrainConfig, overrides: Sequence[str]) -> TrainConfig:
    """The run with another number of `--steps`; by default its warm-ups keep their lengths in steps.

    InputError for overrides that change the steps so far, and without `--steps`.
    """
    steps = override(run, overrides_of("--steps", overrides)).steps
    if steps == run.steps:
        raise InputError(f"--resume with --out is for another number of steps than {steps}; give --steps")
    rising = warmup_steps(run.optimizer, run.steps)
    if steps <= max(rising, run.copy_step):
        raise InputError(
            f"--steps {steps}: this run's rate rises for {rising} steps, and {run.copy_step} are dense; give "
            f"at least {max(rising, run.copy_step) + 1}"
        )
    optimizer = replace(run.optimizer, warmup=rising / steps)
    dense = run.copy_step / steps if run.copy_step else run.warmup.dense_share
    kept = replace(run, steps=steps, optimizer=optimizer, warmup=replace(run.warmup, dense_share=dense))
    planned = override(kept, overrides)
    if changed := changed_settings(run.to_dict(), planned.to_dict(), PLAN):
        raise InputError(f"--resume with --out keeps {changed}; leave the override out, or use --init")
    return planned


def extend(folder: Path, run: TrainConfig, out: Path) -> Path | None:
    """Begin `run` in `out` with the newest checkpoint that it shares with the run in `folder`.

    Called by all processes, which check the checkpoint together; returns its copy in `out`. Files are linked
    or copied, and `folder` is left as it is; so is a run that is already in `out`: then None. InputError
    without such a checkpoint.
    """
    if on_first_rank(lambda: (out / RUN).exists()):
        return None
    before, values = read_run(folder / RUN)
    last = min(shared_steps(before, run), run.steps - 1)
    fitting = [path for path in checkpoints_in(folder / CHECKPOINTS) if step_of(path) <= last]
    checkpoint = first_intact(check_newest_together(fitting))
    if checkpoint is None:
        raise InputError(
            f"--resume {folder}: no intact checkpoint up to step {last}, until which plans of "
            f"{before.steps} and {run.steps} steps agree (schedule {run.optimizer.schedule}); start from the "
            f"weights: `loriini train RECIPE --init {folder} --steps N --out DIR`"
        )
    return on_first_rank(lambda: begin_with(checkpoint, folder, {**values, **run.to_dict()}, out))


def begin_with(checkpoint: Path, folder: Path, settings: Mapping[str, Any], out: Path) -> Path | None:
    """Make `out` a run with these settings, and with a checkpoint and the records of the run in `folder`.

    Returns the checkpoint there; None where another process has begun a run in `out` meanwhile. What a killed
    attempt left is replaced. InputError while another process works in `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    with folder_lock(out):
        if (out / RUN).exists():
            return None
        discard_begun(out)
        write_json(out / BEGUN, settings)
        target = out / CHECKPOINTS / checkpoint.name
        target.parent.mkdir(exist_ok=True)
        link_files(list(checkpoint.iterdir()), target)
        for name in RECORDS:  # all, since the new run may not measure what the other did
            if (folder / name).exists():
                write_text(out / name, records_until(folder / name, step_of(checkpoint)))
        commit(out / BEGUN, out / RUN)
    return target


def begun_in(out: Path) -> set[str]:
    """The names of what a killed `begin_with` left in a folder without a run."""
    if (out / BEGUN).exists():
        return {CHECKPOINTS, *RECORDS}
    checkpoints = out / CHECKPOINTS
    return {CHECKPOINTS} if checkpoints.is_dir() and is_unused(checkpoints) else set()


def discard_begun(out: Path) -> None:
    """Remove what a killed `begin_with` left, which may belong to another checkpoint."""
    if (out / BEGUN).exists():
        for path in checkpoints_in(out / CHECKPOINTS):
            shutil.rmtree(path)
        for name in RECORDS:
            (out / name).unlink(missing_ok=True)
