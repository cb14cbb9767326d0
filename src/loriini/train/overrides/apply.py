"""A run's settings with overrides applied."""

import json
import types
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from loriini.common.errors import InputError
from loriini.common.options import type_text
from loriini.routing import RoutingConfig
from loriini.routing.design import find_design
from loriini.train.overrides.names import OPTIONS, no_such_setting, setting_name, setting_names

Config = TypeVar("Config")
Changes = dict[str, Any]
KINDS: dict[Any, str] = {int: "an integer", float: "a number", dict: "a JSON object"}
"""What a value is to be, for messages."""


def override(config: Config, arguments: Sequence[str]) -> Config:
    """A frozen dataclass with `--dotted.name value` pairs applied; InputError names a wrong one.

    A section is checked once all its overrides are applied, so the order of different ones does not matter;
    of the same one the last counts. `--routing NAME` starts from the design of that name with the segment
    length that the run has; further overrides change its fields.
    """
    changes: Changes = {}
    given = list(override_pairs(arguments))
    for flag, text in sorted(given, key=lambda pair: pair[0].count(".")):  # wholes before parts
        name = setting_name(flag)
        _check_name(type(config), name, flag)
        try:
            _add_change(changes, config, name.split("."), text)
        except (ValueError, TypeError) as error:
            raise InputError(f"{flag} {text}: {error}") from error
    return cast(Config, _apply(config, changes, given))


def override_pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--name value` and `--name=value` as pairs of a flag and its value. InputError for anything else."""
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("--"):
            raise InputError(
                f"unexpected argument {argument!r}; overrides look like --model.num_experts 8, several "
                "values of one like --corpus_weights 2,0.5"
            )
        flag, equals, text = argument.partition("=")
        value = text if equals else next(left, None)
        if value is None:
            raise InputError(f"{flag} has no value; overrides come in pairs, --model.num_experts 8")
        yield flag, value


def override_flags(arguments: Sequence[str]) -> list[str]:
    """The flags of overrides, without their values."""
    return [flag for flag, _ in override_pairs(arguments)]


def overrides_of(flag: str, arguments: Sequence[str]) -> list[str]:
    """The overrides of one setting, `--name`."""
    return [f"{flag}={value}" for given, value in override_pairs(arguments) if given == flag]


def _check_name(kind: type, name: str, flag: str) -> None:
    """InputError for a setting that a dataclass does not have; it names the nearest."""
    names = [known for known in setting_names(kind) if known not in OPTIONS]
    if name not in names and name.rpartition(".")[0] != "routing.options":
        raise InputError(f"{flag}: {no_such_setting(name, names, '--')}")


def _add_change(changes: Changes, config: Any, path: Sequence[str], text: str) -> None:
    """Put a parsed value into the nested `changes` of `config`; ValueError for a wrong value."""
    name, *rest = path
    part = get_type_hints(type(config))[name]
    if rest and get_origin(part) is dict:
        of_part = changes.setdefault(name, dict(getattr(config, name)))
        of_part[rest[0]] = _parse(text, get_args(part)[1])
    elif rest:
        _add_change(changes.setdefault(name, {}), getattr(config, name), rest, text)
    elif part is RoutingConfig:
        design = find_design(text).to_dict()
        del design["segment_length"]  # fits the run's context
        changes[name] = design
    else:
        changes[name] = _parse(text, part)


def _apply(config: Any, changes: Changes, given: Sequence[tuple[str, str]], section: str = "--") -> Any:
    """The changed dataclass; InputError names the `given` overrides of a wrong section."""
    parts = {
        name: _apply(getattr(config, name), value, given, f"{section}{name}.")
        if is_dataclass(getattr(config, name))
        else value
        for name, value in changes.items()
    }
    try:
        return replace(config, **parts)
    except ValueError as error:
        of_section = (f"{flag} {text}" for flag, text in given if f"{flag}.".startswith(section))
        raise InputError(f"{' '.join(of_section)}: {error}") from error


def _parse_union(text: str, kinds: tuple[Any, ...]) -> Any:
    """Text as `none` or one of the kinds' words, else as a value of the kind besides these."""
    if text == "none" and types.NoneType in kinds:
        return None
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if text in words:
        return text
    others = [kind for kind in kinds if kind is not types.NoneType and get_origin(kind) is not Literal]
    if not others:
        raise ValueError(f"it is one of: {', '.join(words)}")
    try:
        return _parse(text, others[0])
    except ValueError as error:
        raise ValueError(f"{error}, nor {' or '.join(words)}" if words else str(error)) from None


def _parse(text: str, kind: Any) -> Any:
    """Text as a value of a field's type."""
    origin = get_origin(kind)
    if origin is Literal:
        for choice in get_args(kind):
            if str(choice) == text:
                return choice
        raise ValueError(f"it is one of: {', '.join(map(str, get_args(kind)))}")
    if origin is tuple:
        kinds = get_args(kind)
        if kinds[0] in (int, float):
            text = text.removeprefix("[").removesuffix("]")
        parts = [] if text == "none" else text.split(",")
        if kinds[-1] is not ... and len(parts) != len(kinds):
            raise ValueError(f"it takes {len(kinds)} values with commas between them")
        return tuple(_parse(part, kinds[0]) for part in parts)
    if origin in (Union, types.UnionType):
        return _parse_union(text, get_args(kind))
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("it is one of: true, false")
        return text == "true"
    if is_dataclass(kind):
        raise ValueError("it has parts; set one of them")
    try:
        if dict not in (kind, origin):
            return kind(text)
        if isinstance(value := json.loads(text), dict):
            return value
        raise ValueError
    except (ValueError, RecursionError):
        raise ValueError(f"it is not {KINDS.get(origin or kind) or f'of type {type_text(kind)}'}") from None
