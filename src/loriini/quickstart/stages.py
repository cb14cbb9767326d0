"""The stages of the quickstart: announced as they begin, with the time and memory of each."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loriini.common.atomic import write_json
from loriini.common.hardware import peak_resident
from loriini.common.json_file import read_object
from loriini.common.progress import announce


@dataclass(frozen=True)
class Stages:
    """The stages of a job in their order; a finished job keeps their costs, `FOLDER/stages.json`."""

    folder: Path
    names: tuple[str, ...]
    finished: bool = False

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Announce a stage and what is left, run it, and add its seconds to those of interrupted attempts."""
        announce(name, self.names)
        started = time.perf_counter()
        try:
            yield
        finally:
            if not self.finished:
                self._add(name, time.perf_counter() - started)

    def costs(self) -> dict[str, dict[str, Any]]:
        """{stage: {"seconds", "peak_memory_bytes"}}; the peak of the process by the end of the stage."""
        path = self.folder / "stages.json"
        return read_object(path, "remove it; only the stages' costs are lost") if path.exists() else {}

    def _add(self, name: str, seconds: float) -> None:
        costs = self.costs()
        before = costs.get(name, {"seconds": 0.0, "peak_memory_bytes": 0})
        costs[name] = {
            "seconds": before["seconds"] + seconds,
            "peak_memory_bytes": max(peak_resident(), before["peak_memory_bytes"]),
        }
        write_json(self.folder / "stages.json", costs)
