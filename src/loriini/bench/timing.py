"""Cases that take turns: each is built, warmed up, measured and freed before the next."""

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

import torch

from loriini.bench.operations import Machine
from loriini.common.errors import is_out_of_memory
from loriini.common.hardware import has_bf16, pick_device
from loriini.common.progress import warn
from loriini.estimate.memory import GIB

Row = dict[str, Any]
Work = Callable[[], object]
Result = TypeVar("Result")
MOST_HELD = GIB
"""Bytes on an accelerator, while no model is there, above which something was not freed."""


@dataclass(frozen=True)
class Case:
    """Something to measure: `build` makes a model and returns a function that runs once what is measured.

    `build` also runs the function once, at least in part, so that work done in the first call only is not
    measured. `details` are further keys of the case's row.
    """

    name: str
    experts: int
    build: Callable[[], Work]
    details: Row = field(default_factory=dict)
    least: Callable[[Machine], float] | None = None
    """A lower bound of its seconds on a machine, without what its baseline does too; None: unknown."""


@dataclass
class Attempts:
    """Measurements one after the other; on a GPU, where one fails the others go on."""

    deadline: float = math.inf
    """The time of `time.monotonic` after which none begins."""
    errors: list[str] = field(default_factory=list)
    """What failed on a GPU for another reason than its memory."""

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.deadline

    def attempt(self, what: str, measure: Callable[[], Result]) -> Result | None:
        """What `measure` returns; None, with a warning, where it fails on a GPU or the time is over."""
        if self.over:
            warn(f"{what}: left out, since the time is over")
            return None
        result = None
        try:
            result = measure()
        except Exception as error:  # near the end of memory, cuBLAS and Triton have errors of their own
            if isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error):
                warn(f"{what}: left out, since the memory is too small")
            elif pick_device().type == "cuda":
                reason = next(iter(str(error).splitlines()), "")
                self.errors.append(f"{what}: {type(error).__name__}: {reason}")
                warn(f"{what}: left out, since it failed: {type(error).__name__}: {reason}")
            else:
                raise
        free()  # only now does the error hold nothing of what was measured
        return result


def turns(cases: int, i: int) -> range:
    """The order in which cases take turns in round `i`.

    It alternates, so that a drift of the machine's speed favours none.
    """
    order = range(cases)
    return order if i % 2 == 0 else order[::-1]


def in_rounds(cases: Sequence[Case], rounds: int, warmup: int = 1) -> Iterator[list[float]]:
    """Seconds of each case in each round; only one case's model is in memory at a time.

    The first `warmup` rounds do not count: caches and clocks settle in them.
    """
    for i in range(-warmup, rounds):
        seconds = {place: measured(cases[place])[0] for place in turns(len(cases), i)}
        if i >= 0:
            yield [seconds[place] for place in range(len(cases))]


def measured(case: Case, repeats: int = 1) -> list[float]:
    """Build a case, time it `repeats` times, and free it.

    torch's error where it would go on without compiling.
    """
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        work = case.build()
        seconds = [timed(work) for _ in range(repeats)]
    del work
    free()
    return seconds


def timed(work: Work) -> float:
    """Seconds that a work takes, asynchronous work of the device included."""
    synchronize()
    started = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - started


def synchronize() -> None:
    """Wait for the accelerator to finish."""
    if pick_device().type == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Free the last case's memory; on a GPU with the graphs that were compiled, which may hold some of it."""
    on_gpu = pick_device().type == "cuda"
    if on_gpu:
        torch.compiler.reset()
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        if (held := torch.cuda.memory_allocated()) > MOST_HELD:
            warn(f"{held / GIB:.1f} GiB of the GPU's memory were not freed, so that less is left")


def speed(seconds: Iterable[float], reference: Iterable[float]) -> float:
    """The median over rounds of the speed relative to the reference's in the same round."""
    return median(theirs / ours for ours, theirs in zip(seconds, reference, strict=True))


def row(what: str, case: Case, baseline: Case, seconds: Sequence[Sequence[float]], tokens: int) -> Row:
    """A case's result; `seconds` are its own and the baseline's, by round."""
    of_case, reference = seconds
    return {
        **result(what, case.name, case.experts, baseline.name, speed(of_case, reference), tokens),
        "median_s": round(median(of_case), 6),
        "runs": len(of_case),
        "seconds": [round(s, 6) for s in of_case],
        "baseline_seconds": [round(s, 6) for s in reference],
        "tokens_per_second": round(tokens / median(of_case), 1),
        "threads": torch.get_num_threads(),
        **case.details,
    }


def result(what: str, design: str, experts: int, baseline: str, ratio: float, tokens: int) -> Row:
    """The keys that every row has."""
    return {
        "what": what,
        "design": design,
        "experts": experts,
        "dtype": "bf16" if has_bf16(pick_device()) else "fp32",
        "ratio": round(ratio, 4),
        "baseline": baseline,
        "median_s": None,
        "runs": 1,
        "tokens_per_step": tokens,
    }
