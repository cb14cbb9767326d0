"""Steps whose gradient is not finite or a spike: skipped, counted, saved, and replayed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from loriini.common.atomic import atomic
from loriini.common.checks import Count, NotNegative, check_fields
from loriini.common.errors import InputError
from loriini.common.settings import setting
from loriini.data.batches.loader import BatchLoader

SKIPPED = "skipped"
WINDOW = 128
"""How many of the last steps' gradient norms the next one is compared with, as in OLMo-core."""


@dataclass(frozen=True)
class GuardConfig:
    """Which steps are skipped besides those that are not finite, and when a run gives up."""

    max_skips: Count = setting(10, "aside")
    """Stop the run after this many skipped steps in a row."""
    spike: NotNegative = setting(0.0, may_change=True)
    """Skip a step whose gradient norm before clipping is more than this many standard deviations above the
    mean of the last 128 steps' norms (OLMo-core: 6); 0: none."""

    def __post_init__(self) -> None:
        check_fields(self, "guard.")


def largest_norm(spike: float, norms: Sequence[float]) -> float:
    """The largest gradient norm of a step that is taken after steps of these `norms`; infinite without guard.

    It is `spike` standard deviations above their mean, once they fill half of the window, as in OLMo-core's
    `SkipStepOptimizer`. Norms of skipped steps count: a lasting change soon becomes the new level. Mean and
    deviation are exact up to the last bit, and so the same on every machine.
    """
    if spike == 0 or len(norms) < WINDOW // 2:
        return math.inf
    return fmean(norms) + spike * stdev(norms)


def with_norm(norms: Sequence[float], norm: float) -> tuple[float, ...]:
    """The window of norms after one more step; a norm that is not finite is left out."""
    return (*norms, norm)[-WINDOW:] if math.isfinite(norm) else tuple(norms)


def write_skipped(
    out: Path, step: int, batches: BatchLoader, consumed: int, length: int, document_mask: bool = False
) -> Path:
    """Save this rank's share of the batch after `consumed` instances, which `step` skipped, for `replay`.

    `skipped/step-N.rank-R.npz` holds `instances` (B,), their `tokens` (B, L+1), `labels` (B,) and
    `positions` (B, L+1): those in the document with `document_mask`, else in the instance. L is the
    run's `length`; a corpus may have longer instances.
    """
    tokens_BL, instances_B, _ = batches.at(consumed)
    tokens_BL = tokens_BL[:, : length + 1]
    path = out / SKIPPED / f"step-{step:08d}.rank-{batches.rank}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    labels_B = batches.instances.labels(instances_B)
    positions_BL = np.broadcast_to(np.arange(tokens_BL.shape[1]), tokens_BL.shape)
    if document_mask:
        positions_BL = batches.instances.positions(instances_B)[:, : length + 1]
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(
            file, instances=instances_B, tokens=tokens_BL, labels=labels_B, positions=positions_BL
        )
    return path


def drop_skipped(out: Path, step: int) -> None:
    """Remove the batches that were skipped after `step`, those of other numbers of processes too."""
    for path in (out / SKIPPED).glob("step-*.rank-*.npz"):
        number = path.name.removeprefix("step-").partition(".")[0]
        if number.isdigit() and int(number) > step:
            path.unlink()


def skips_error(out: Path, step: int, skips: int) -> InputError:
    """The error after too many skipped steps in a row, the last of them `step`."""
    return InputError(
        f"{out}: steps {step - skips + 1} to {step} were skipped, their gradients not finite or spikes; "
        f"their batches are in {out / SKIPPED}. Lower --optimizer.learning_rate in a new run, look at the "
        f"batches, or go on with --resume {out} --guard.max_skips {2 * skips}"
    )
