"""The record of every step: lines of `metrics.jsonl` and `evaluation.jsonl`, and experiment trackers."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loriini.common.atomic import write_text
from loriini.common.checks import Count, Positive, check_fields
from loriini.common.errors import InputError
from loriini.common.json_file import without_nan
from loriini.common.settings import Needs, setting
from loriini.train.records.metrics import EVALUATION, METRICS
from loriini.train.records.tracing import profiled_steps

Settings = Mapping[str, Any]
Scalars = Mapping[str, float]
Log = Callable[[int, Scalars], None]
"""Logs the scalars of a step."""
Record = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Records a step's metrics, and its evaluation (empty if there was none)."""

PROJECT = "loriini"


@dataclass(frozen=True)
class WatchConfig:
    """Experiment trackers that get a run's metrics besides `metrics.jsonl`."""

    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Trackers: tensorboard, wandb."""
    every: Count = setting(10, needs=Needs("a tracker, --watch.trackers", lambda run: run.watch.trackers))
    """Steps between records sent to trackers; `metrics.jsonl` gets every step."""
    peak_flops: Positive | None = None
    """The device's peak FLOPs a second, for MFU; none: looked up by the GPU's name."""
    profile: str | None = None
    """Steps A:B that torch's profiler traces, into RUN/profile/, a file of each process; none: no trace."""

    def __post_init__(self) -> None:
        check_fields(self, "watch.")
        profiled_steps(self.profile)


@contextmanager
def tensorboard(name: str, settings: Settings, out: Path, step: int) -> Iterator[Log]:
    """Event files in `out/tensorboard`; hides earlier records of steps after `step`."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(out / "tensorboard"), purge_step=step + 1)

    def log(at: int, scalars: Scalars) -> None:
        for key, value in scalars.items():
            writer.add_scalar(key, value, at)

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def wandb(name: str, settings: Settings, out: Path, step: int) -> Iterator[Log]:
    """Weights & Biases, files in `out/wandb`; WANDB_MODE=offline needs no account."""
    import wandb as tracker

    try:
        tracker.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            id=_identity(out),
            config=dict(settings),
            dir=str(out),
            resume="allow",
        )
    except tracker.errors.UsageError as error:
        raise InputError(f"watch.trackers=wandb: {error} Or set WANDB_MODE=offline") from error
    try:
        yield lambda at, scalars: tracker.log(dict(scalars), step=at)
    finally:
        tracker.finish()


TRACKERS: dict[str, Callable[[str, Settings, Path, int], AbstractContextManager[Log]]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
}
"""By name, trackers: each takes a run's name, settings, folder and steps taken, and yields a `Log`."""


def check_trackers(names: Sequence[str]) -> None:
    """InputError for a tracker that is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise InputError(f"watch.trackers={name}: it is not installed; pip install 'loriini[{name}]'")


@contextmanager
def recording(
    config: WatchConfig, name: str, settings: Settings, out: Path | None, step: int
) -> Iterator[Record]:
    """Yield a function that records a step in `out` and with trackers; if `out` is None, it does nothing."""
    if out is None:
        yield lambda metrics, measured: None
        return
    with ExitStack() as stack:
        file = stack.enter_context(open(out / METRICS, "a"))
        logs = [stack.enter_context(TRACKERS[t](name, settings, out, step)) for t in config.trackers]

        def record(metrics: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
            file.write(json.dumps(metrics) + "\n")
            file.flush()
            if measured:
                with open(out / EVALUATION, "a") as evaluations:
                    evaluations.write(json.dumps({"step": metrics["step"], **without_nan(measured)}) + "\n")
            if logs and (measured or metrics["step"] % config.every == 0):
                scalars = dict(scalars_of({**metrics, "evaluation": measured}))
                for log in logs:
                    log(metrics["step"], scalars)

        yield record


def scalars_of(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in a step's metrics by name; lists by index: the layer, then the expert.

    Bit masks of active experts become the fraction of experts that are active, `utilisation`.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "active":
                key, part = "utilisation", [mask.bit_count() / value["experts"] for mask in part]
            yield from scalars_of(part, f"{name}/{key}" if name else key)
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from scalars_of(part, f"{name}/{i}")
    elif isinstance(value, int | float):
        yield name, float(value)


def _identity(out: Path) -> str:
    """An id for the run in a folder, the same whenever it is resumed."""
    path = out / "watch.id"
    if not path.exists():
        write_text(path, os.urandom(4).hex())
    return path.read_text()
