"""Overrides that have no effect on the run that they are given for."""

from collections.abc import Iterable

from loriini.common.errors import InputError
from loriini.common.settings import UNKNOWN, settings_of
from loriini.train.config import AUTO, TrainConfig
from loriini.train.optimizer import A_MIXTURE
from loriini.train.overrides.names import setting_name

FOR_ANY_DESIGN = "routing.segment_length"
"""The field of a design that is accepted where it changes nothing, for commands that differ in the design."""


def refuse_unused(run: TrainConfig, flags: Iterable[str], processes: int) -> None:
    """InputError for an override in `flags` that has no effect on `run` in this many processes."""
    for flag in flags:
        if needed := _missing(run, setting_name(flag), processes):
            raise InputError(f"{flag} has no effect here: it needs {needed}; leave it out")


def _missing(run: TrainConfig, name: str, processes: int) -> str | None:
    """What a setting needs to change this run; None where it does."""
    section, _, field = name.rpartition(".")
    if section == "parallel" and processes == 1:
        value = getattr(run.parallel, field)
        if value is True or value not in (0, 1):
            return "several processes, started by torchrun"
    if name == "parallel.reduce_once" and run.parallel.reduce_once and run.micro_batch_size != AUTO:
        share = run.batch_size // processes
        if run.instances_at_once(share) == share:
            return "several micro-batches, --micro_batch_size below a process's share of --batch_size"
    of_design = name.startswith("routing")
    if of_design and not run.is_mixture and name != FOR_ANY_DESIGN:
        return None if name == "routing" and run.routing.constant_gates else A_MIXTURE.text
    needs = settings_of(TrainConfig).get(name, UNKNOWN).needs
    if needs is None or name == FOR_ANY_DESIGN or needs.met(run.routing if of_design else run):
        return None
    return needs.text
