"""Settings: dataclass fields with metadata on what they change, and what they need to have an effect.

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
- `training`: how the weights are trained
- `start`: the weights that training begins with
- `path`: where text is; its content is compared by digest
- `measure`: results of measurements during training, but not what is trained
- `aside`: memory, time and records, but not what is trained or measured
"""


@dataclass(frozen=True)
class Needs:
    """A condition for a setting to have an effect: its text for messages, and whether it is met.

    `met` is called with the run or, for a field of a routing design, with the design.
    """

    text: str
    met: Callable[[Any], object]


@dataclass(frozen=True)
class Setting:
    """The metadata of a setting. Without a `kind`, its section's applies."""

    kind: Kind | None = None
    needs: Needs | None = None
    may_change: bool = False
    """Whether it may change when a run is resumed, unlike others of its kind."""


UNKNOWN = Setting()


def setting(
    default: Any = MISSING,
    kind: Kind | None = None,
    needs: Needs | None = None,
    may_change: bool = False,
    **keywords: Any,
) -> Any:
    """A dataclass field, for a setting or a section, with a `Setting`; `keywords` go to `dataclasses.field`.

    A section's kind applies to its settings that have none.
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
