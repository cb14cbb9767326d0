"""Cases that take turns: each is built, warmed up, measured and freed before the next."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from loriini.common.hardware import pick_device

Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Something to measure: `build` makes a model and returns a function whose call is timed.

    `build` also warms the model up, so that work done only in the first calls is not measured.
    """

    name: str
    experts: int
    build: Callable[[], Work]


def in_rounds(cases: Sequence[Case], rounds: int) -> Iterator[list[float]]:
    """Seconds of each case in each round; only one case's model is in memory at a time.

    The order alternates, so that a drift of the machine's speed favours none.
    """
    for i in range(rounds):
        places = range(len(cases)) if i % 2 == 0 else reversed(range(len(cases)))
        seconds = {place: measured(cases[place]) for place in places}
        yield [seconds[place] for place in range(len(cases))]


def measured(case: Case) -> float:
    """Build a case, run it once and free it; returns the seconds of the run alone.

    Raises torch's error at the recompile limit, instead of running uncompiled code.
    """
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        work = case.build()
        synchronize()
        started = time.perf_counter()
        work()
        synchronize()
        seconds = time.perf_counter() - started
    del work
    free()
    return seconds


def synchronize() -> None:
    """Wait for the accelerator to finish."""
    if pick_device().type == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Free the last case's memory; on a GPU also compiled graphs, which may hold some of it."""
    gc.collect()
    if pick_device().type == "cuda":
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
