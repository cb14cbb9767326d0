"""The settings of a run that the command line can change, by name, and those nearest to a wrong name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from itertools import accumulate
from typing import Any, get_type_hints

from loriini.common.checks import as_argument, the_nearest
from loriini.common.options import field_meanings, type_text
from loriini.common.settings import settings_of
from loriini.routing import DESIGNS, RoutingConfig
from loriini.train.config import TrainConfig

OPTIONS = {"corpus", "init", "init_digest"}
"""Settings that are no overrides: they are options of the command line, or follow from one."""


@dataclass(frozen=True)
class Override:
    """A setting of a run as the command line takes it: `--name value`."""

    name: str
    """Dotted, without the leading dashes."""
    type: str
    default: str
    meaning: str


def describe_overrides(config: Any, section: str = "") -> Iterator[Override]:
    """Every setting that the command line can change in a run, with its value there as the default.

    Meanings are the docstrings of the dataclasses' fields. The settings of the run itself come first.
    """
    meanings, hints = field_meanings(type(config)), get_type_hints(type(config))
    parts = {name: getattr(config, name) for name in hints if is_dataclass(getattr(config, name))}
    for name, hint in hints.items():
        if name not in parts and name not in OPTIONS:
            default = as_argument(getattr(config, name)) or '""'
            yield Override(f"{section}{name}", type_text(hint), default, meanings.get(name, ""))
    for name, part in parts.items():
        if isinstance(part, RoutingConfig):
            known = (design for design, routing in DESIGNS.items() if routing == part)
            yield Override(f"{section}{name}", "design", next(known, "as below"), meanings.get(name, ""))
        yield from describe_overrides(part, f"{section}{name}.")


def setting_names() -> list[str]:
    """The dotted names of a run's settings and sections; a section comes before its settings."""
    parts = (name.split(".") for name in settings_of(TrainConfig))
    return list(dict.fromkeys(name for each in parts for name in accumulate(each, "{}.{}".format)))


def setting_name(flag: str) -> str:
    """The dotted name of the setting that a flag changes, such as `batch_size` for `--batch-size`."""
    return flag.removeprefix("--").replace("-", "_")


def no_such_setting(name: str, names: Sequence[str], dashes: str = "") -> str:
    """The message that a run has no setting `name`, with the nearest of the dotted `names`."""
    hint = the_nearest([f"{dashes}{known}" for known in _nearest(name, names)])
    return f"no such setting; {hint}`loriini train RECIPE --help` lists all"


def _nearest(name: str, names: Sequence[str]) -> list[str]:
    """The settings that may be meant: all with the same last part, else one whose last part is similar."""
    last = name.rpartition(".")[2]
    by_last = {known.rpartition(".")[2]: known for known in names}
    same = [known for known in names if known.rpartition(".")[2] == last]
    return same or [by_last[each] for each in get_close_matches(last, by_last, 1)]
