"""Which settings may change when a run is resumed, and which would make it another run."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from loriini.common.checks import as_argument, by_dotted_name
from loriini.common.errors import InputError
from loriini.common.settings import settings_of, settings_of_kind
from loriini.routing import RoutingConfig
from loriini.routing.registry import REGISTERED
from loriini.train.config import TrainConfig

NOT_OF_TRAINING = settings_of_kind(TrainConfig, "path", "measure", "aside")
"""Settings that, with any design, change the trained weights by no more than rounding."""
MAY_CHANGE = (
    *settings_of_kind(TrainConfig, "path", "aside"),
    *(name for name, setting in settings_of(TrainConfig).items() if setting.may_change),
)
"""Settings that may change when a run is resumed. Text may move, as its digest is compared."""
PATHS = settings_of_kind(TrainConfig, "path")


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The dotted names of the settings that differ, except those that may change.

    `micro_batch_size` may change unless a loss or a selection compares the units of a micro-batch.
    """
    changeable = (*MAY_CHANGE, *free_micro_batch(RoutingConfig(**now["routing"])))
    may_change = tuple(f"{name}." for name in changeable)
    return [name for name in differing(before, now) if not f"{name}.".startswith(may_change)]


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Dotted names of settings that differ or that only one side has."""
    then, today = map(by_dotted_name, (before, now))
    return [name for name in sorted({*then, *today}) if then.get(name, ...) != today.get(name, ...)]


def described_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Messages on the settings that differ, with both values, except the paths of text."""
    then, today = map(by_dotted_name, (before, now))
    for name in differing(before, now):
        if name not in PATHS:
            yield f"{name} {as_argument(today.get(name))}, not {as_argument(then.get(name))}"


def refuse_changes(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """InputError if `now` are the settings of another run than `before`, which `path` records."""
    if changed := changed_settings(before, now):
        only_text = {"corpus_digest", "heldout_digest"}.issuperset(changed)
        another = "choose another --out, or remove the folder"
        remedy = "give the text that it began with" if only_text else another
        raise InputError(f"{path}: this folder holds another run (different: {', '.join(changed)}); {remedy}")


def compared_over(routing: RoutingConfig) -> Literal["process", "all", ""]:
    """Which units of a micro-batch a design's losses or selections compare with each other.

    "process": those of each process (expert choice, extensions' losses); "all": those of all processes (the
    load balance alone); "": none.
    """
    if routing.compares_units or not routing.loss_weights.keys().isdisjoint(REGISTERED["loss"]):
        return "process"
    return "all" if routing.load_balance > 0 else ""


def free_micro_batch(routing: RoutingConfig) -> tuple[str, ...]:
    """`micro_batch_size` if it changes the trained weights by no more than rounding, else nothing."""
    return () if compared_over(routing) else ("micro_batch_size",)


def check_pool(run: TrainConfig, before: int, now: int, path: Path) -> None:
    """InputError if `now` processes, not `before`, would compare the units of other instances."""
    over = compared_over(run.routing) if run.is_mixture else ""
    if not over or run.batch_size % before or run.batch_size % now:
        return

    def compared_at_once(processes: int) -> tuple[int, int]:
        """How many instances are compared in a micro-batch, and in the last one."""
        share = run.batch_size // processes
        size, together = run.instances_at_once(share), processes if over == "all" else 1
        return size * together, (share % size or size) * together

    if compared_at_once(before) != compared_at_once(now):
        raise InputError(
            f"{path}: this design compares the units of instances that go through the model together, and "
            f"{now} processes would group other instances than {before} did; resume it in {before}"
        )
