"""The guard that skips and counts steps whose gradient is not finite or a spike."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from loriini.common.checks import Count, NotNegative, check_fields
from loriini.common.errors import InputError
from loriini.common.settings import setting

WINDOW = 128
"""Number of previous gradient norms that a step's norm is compared with, as in OLMo-core."""


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
    """The largest gradient norm with which the next step is taken, after steps of these `norms`.

    It is `spike` standard deviations above their mean, as in OLMo-core's `SkipStepOptimizer`; infinite if
    `spike` is 0 or fewer norms than half of the window are known. Norms of skipped steps count: a lasting
    change soon becomes the new level. Mean and deviation are exact, and so the same on every machine.
    """
    if spike == 0 or len(norms) < WINDOW // 2:
        return math.inf
    return fmean(norms) + spike * stdev(norms)


def with_norm(norms: Sequence[float], norm: float) -> tuple[float, ...]:
    """The window of norms after one more step; a norm that is not finite is left out."""
    return (*norms, norm)[-WINDOW:] if math.isfinite(norm) else tuple(norms)


def skips_error(out: Path, step: int, skips: int) -> InputError:
    """The error after too many skipped steps in a row, the last of them `step`."""
    return InputError(
        f"{out}: steps {step - skips + 1} to {step} were skipped, gradients not finite or spikes; go on "
        f"with --resume {out} --guard.max_skips {2 * skips}, or lower --optimizer.learning_rate in a new run"
    )
