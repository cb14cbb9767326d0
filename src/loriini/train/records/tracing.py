"""A trace of some steps by torch's profiler, for chrome://tracing or Perfetto."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from loriini.common.errors import InputError

FOLDER = "profile"


def profiled_steps(text: str | None) -> range:
    """The steps A to B of `A:B`, both included; empty for None. InputError for anything else."""
    if text is None:
        return range(0)
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise InputError(f"--watch.profile is {text}; it must be A:B, the first and the last step")
    return range(int(first), int(last) + 1)


@contextmanager
def profiling(steps: range, out: Path, rank: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with each step's number before the step: it traces those in `steps`.

    The trace of a process is `out/profile/steps-A-B.rank-R.json`; a run that begins or ends within these
    steps traces the part that it takes.
    """
    traced: list[int] = []
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    profiler = profile(activities=activities) if steps else None

    def end() -> None:
        if profiler is not None and traced:
            profiler.stop()
            path = out / FOLDER / f"steps-{traced[0]}-{traced[-1]}.rank-{rank}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(path))
            traced.clear()

    def before(step: int) -> None:
        if step not in steps:
            end()
        elif profiler is not None:
            if not traced:
                profiler.start()
            traced.append(step)

    try:
        yield before
    finally:
        end()
