"""Shared by the benchmarks: seconds, memory of a process, the results file."""

import resource
import time
from collections.abc import Callable
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any, TypeVar

from loriini.common.atomic import write_json
from loriini.common.hardware import describe_machine

Result = TypeVar("Result")
LIBRARIES = ("faiss-cpu", "numba", "numpy", "sentence-transformers", "transformers")


def timed(work: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    """What `work` returns, and its seconds on the wall and of all cores, finished children included."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"wall_s": round(time.perf_counter() - wall, 4), "cpu_s": round(cpu_seconds() - cpu, 4)}


def cpu_seconds() -> float:
    """Processor time of this process and of its children that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def held_bytes() -> int:
    """The memory this process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def write_results(path: Path, **results: Any) -> None:
    """Write the results with the date, the machine and the libraries' versions."""
    installed = {distribution.name for distribution in distributions()}
    versions = {name: version(name) for name in LIBRARIES if name in installed}
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"date": time.strftime("%Y-%m-%d"), "machine": describe_machine(), "versions": versions}
    write_json(path, {**about, **results})
