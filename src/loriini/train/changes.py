"""What may change when a run is resumed, and what would make it another run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loriini.common.checks import as_argument, by_dotted_name
from loriini.common.errors import InputError
from loriini.common.settings import settings_of, settings_of_kind
from loriini.routing import RoutingConfig
from loriini.routing.registry import REGISTERED
from loriini.train.config import TrainConfig

NOT_OF_TRAINING = settings_of_kind(TrainConfig, "path", "measure", "aside")
"""Settings that leave what is trained unchanged, up to rounding, whatever the design."""
MAY_CHANGE = (
    *settings_of_kind(TrainConfig, "path", "aside"),
    *(name for name, setting in settings_of(TrainConfig).items() if setting.may_change),
)
"""Settings that may change when a run is resumed. Text may move: its digest is compared."""
PATHS = settings_of_kind(TrainConfig, "path")


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The dotted names of the settings that differ, except those that may change.

    `micro_batch_size` may change unless a loss or a selection is over the units of a micro-batch.
    """
    changeable = (*MAY_CHANGE, *free_micro_batch(RoutingConfig(**now["routing"])))
    may_change = tuple(f"{name}." for name in changeable)
    return [name for name in differing(before, now) if not f"{name}.".startswith(may_change)]


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The dotted names of the settings with other values, or that one of them lacks."""
    then, today = map(by_dotted_name, (before, now))
    return [name for name in sorted({*then, *today}) if then.get(name, ...) != today.get(name, ...)]


def described_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ, with both values, except where the text is."""
    then, today = map(by_dotted_name, (before, now))
    for name in differing(before, now):
        if name not in PATHS:
            yield f"{name} {as_argument(today.get(name))}, not {as_argument(then.get(name))}"


def refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """InputError for settings of another run than the one before, which `path` records."""
    if changed := changed_settings(before, now):
        only_text = {"corpus_digest", "heldout_digest"}.issuperset(changed)
        another = "choose another --out, or remove the folder"
        remedy = "give the text that it began with" if only_text else another
        raise InputError(f"{path}: this folder holds another run (different: {', '.join(changed)}); {remedy}")


def compares_micro_batches(routing: RoutingConfig) -> bool:
    """Whether a design has losses or selections over the units of a micro-batch."""
    return routing.load_balance > 0 or compares_within_processes(routing)


def compares_within_processes(routing: RoutingConfig) -> bool:
    """Whether a design compares units within each process (expert choice, extensions' losses); load balance
    spans all processes."""
    return routing.compares_units or not routing.loss_weights.keys().isdisjoint(REGISTERED["loss"])


def free_micro_batch(routing: RoutingConfig) -> tuple[str, ...]:
    """The setting of the micro-batch where it leaves what is trained unchanged, up to rounding."""
    return () if compares_micro_batches(routing) else ("micro_batch_size",)


def check_pool(run: TrainConfig, before: int, now: int, path: Path) -> None:
    """InputError where another number of processes would compare units of other instances.

    Load balance averages over all processes; what else compares units does so in each process.
    """
    compares = run.is_mixture and compares_micro_batches(run.routing)
    if not compares or run.batch_size % before or run.batch_size % now:
        return
    within = compares_within_processes(run.routing)
    then, here = (compared_at_once(run, processes, within) for processes in (before, now))
    if then != here:
        raise InputError(
            f"{path}: this design compares the units of instances that go through the model together, and "
            f"{now} processes would group other instances than {before} did; resume it in {before}"
        )


def compared_at_once(run: TrainConfig, processes: int, within: bool) -> tuple[int, int]:
    """How many instances each process, or all together, compares in a micro-batch, and in the last one."""
    share = run.batch_size // processes
    size, together = run.instances_at_once(share), 1 if within else processes
    return size * together, (share % size or size) * together
