"""A run of more or fewer steps that continues from another's checkpoint, as if it had been planned that way.

Both have the same learning rates and the same dense steps up to that checkpoint. With a cosine they never do,
since every rate depends on the number of steps.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loriini.common.atomic import atomic, write_json, write_text
from loriini.common.errors import InputError
from loriini.common.hub import CHECKPOINTS, RUN
from loriini.data.jobs.artifact import link_files
from loriini.parallel.mesh import on_first_rank
from loriini.train.changes import PLAN, changed_settings, shared_steps
from loriini.train.checkpoints.state import check_newest_together, checkpoints_in, first_intact, step_of
from loriini.train.config import TrainConfig, read_run
from loriini.train.optimizer import warmup_steps
from loriini.train.overrides.apply import override, overrides_of
from loriini.train.records.metrics import RECORDS, records_until


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
    without such a checkpoint, and where `out` holds anything else.
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

    def begin() -> None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise InputError(f"--out {out}: holds something, but no run; choose another")
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic(out) as new:
            (new / CHECKPOINTS).mkdir(parents=True)
            link_files(list(checkpoint.iterdir()), new / CHECKPOINTS / checkpoint.name)
            for name in RECORDS:  # all, since the new run may not measure what the other did
                if (folder / name).exists():
                    write_text(new / name, records_until(folder / name, step_of(checkpoint)))
            write_json(new / RUN, {**values, **run.to_dict()})

    on_first_rank(begin)
    return out / CHECKPOINTS / checkpoint.name
