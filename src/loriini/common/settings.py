"""What a setting is, stated with its dataclass field: what it changes, and what it needs to have an effect.

@dataclass(frozen=True)
class EvaluateConfig:
    every: Count = setting(500, "aside", needs=Needs("--heldout", lambda run: run.evaluate.heldout))
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_type_hints

Kind = Literal["name", "seed", "design", "weights", "training", "start", "path", "measure", "aside"]
"""What a setting changes:

- `name`: what a run is called; `seed`: which of several repetitions it is
- `design`: the routing design and its experts; `weights`: shapes and meaning of all other weights
- `training`: how these are trained
- `start`: the weights at the beginning
- `path`: where text is, whose content is compared by its digest
- `measure`: results of measurements during training, but not what is trained
- `aside`: memory, time and records, but neither what is trained nor what is measured
"""


@dataclass(frozen=True)
class Needs:
    """A condition for a setting to have an effect: its text for messages, and whether it is met.

    `met` is asked of the whole run; for a field of a routing design, of the design.
    """

    text: str
    met: Callable[[Any], object]


@dataclass(frozen=True)
class Setting:
    """What a setting is; without a kind, it is of its section's."""

    kind: Kind | None = None
    needs: Needs | None = None
    may_change: bool = False
    """Whether it may change when a run is resumed, though others of its kind may not."""


UNKNOWN = Setting()


def setting(
    default: Any = MISSING,
    kind: Kind | None = None,
    needs: Needs | None = None,
    may_change: bool = False,
    **keywords: Any,
) -> Any:
    """A dataclass's field, or its section, that says what it is; `keywords` are for `dataclasses.field`.

    A section's kind is that of its settings that have none.
    """
    metadata = {"setting": Setting(kind, needs, may_change)}
    return field(default=default, metadata=metadata, **keywords)


@cache
def settings_of(config: type) -> Mapping[str, Setting]:
    """All settings of a dataclass and its sections by dotted name, such as `optimizer.warmup`."""
    return MappingProxyType(dict(_settings_of(config, "", None)))


def _settings_of(config: Any, section: str, kind: Kind | None) -> Iterator[tuple[str, Setting]]:
    hints = get_type_hints(config)
    for each in fields(config):
        own = each.metadata.get("setting", UNKNOWN)
        own = replace(own, kind=own.kind or kind)
        if is_dataclass(hints[each.name]):
            yield from _settings_of(hints[each.name], f"{section}{each.name}.", own.kind)
        else:
            yield f"{section}{each.name}", own


def settings_of_kind(config: type, *kinds: Kind) -> tuple[str, ...]:
    """The dotted names of a dataclass's settings of these kinds."""
    return tuple(name for name, setting in settings_of(config).items() if setting.kind in kinds)
