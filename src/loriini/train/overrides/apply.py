"""Overrides of the command line, or values of a file, applied to a run's settings."""

import json
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from loriini.common.errors import InputError
from loriini.common.options import type_text
from loriini.routing import RoutingConfig
from loriini.routing.design import design_and_fields
from loriini.train.config import TrainConfig, value_from_json
from loriini.train.overrides.names import OPTIONS, no_such_setting, setting_name, setting_names

KINDS: dict[Any, str] = {int: "an integer", float: "a number", dict: "a JSON object"}
"""What a value of each type must be, for messages."""


def override(run: TrainConfig, arguments: Sequence[str]) -> TrainConfig:
    """A run with `--dotted.name value` pairs applied; InputError names a wrong one.

    A section is checked once all its overrides are applied, so their order does not matter; if one is given
    twice, the last counts. `--routing NAME` starts from the design of that name with the run's segment
    length; further overrides change its fields.
    """
    given = list(override_pairs(arguments))
    values: dict[str, Any] = {}
    for flag, text in sorted(given, key=lambda pair: pair[0].count(".")):  # wholes before parts
        name = setting_name(flag)
        _check_name(name, flag)
        try:
            if name == "routing":
                run = with_values(run, {name: text})
            else:
                _add_value(values, run, name.split("."), text)
        except ValueError as error:
            raise InputError(f"{flag} {text}: {error}") from error
    try:
        run = with_values(run, values)
    except ValueError as error:  # of the design; the other sections' errors name their field
        of_design = (f"{flag} {text}" for flag, text in given if f"{flag}.".startswith("--routing."))
        raise InputError(f"{' '.join(of_design)}: {error}") from error
    return run


def with_values(config: Any, values: Mapping[str, Any], section: str = "") -> Any:
    """A configuration with other `values`, in nested tables as JSON and TOML have them.

    InputError for an unknown field or a value of a wrong type, ValueError for an impossible routing design.
    """
    hints = get_type_hints(type(config))
    changes = {}
    for name, value in values.items():
        where = f"{section}{name}"
        if name not in hints:
            sections = [each for each in hints if is_dataclass(getattr(config, each))]
            is_section = isinstance(value, dict) and get_close_matches(name, sections)
            known = sections if is_section else [*setting_names(), "routing.design"]
            raise InputError(f"{where}: {no_such_setting(where, known)}")
        part = getattr(config, name)
        if isinstance(part, RoutingConfig):
            design, value = design_and_fields(value, part)
            part = replace(design, segment_length=part.segment_length)
        if is_dataclass(part):
            if not isinstance(value, dict):
                raise InputError(f"{where} is {value!r}; it must be a table of settings")
            changes[name] = with_values(part, value, f"{where}.")
        elif get_origin(hints[name]) is tuple and not isinstance(value, list):
            raise InputError(f"{where} is {value!r}; it must be a list")
        else:
            try:
                changes[name] = value_from_json(hints[name], value)
            except TypeError:
                raise InputError(f"{where} is {value!r}; it must be {type_text(hints[name])}") from None
    return replace(config, **changes)


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


def overrides_of(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The overrides of the settings of these dotted names."""
    return [f"{flag}={value}" for flag, value in override_pairs(arguments) if setting_name(flag) in names]


def _check_name(name: str, flag: str) -> None:
    """InputError for a setting that a run does not have; it names the nearest."""
    names = [known for known in setting_names() if known not in OPTIONS]
    if name not in names and name.rpartition(".")[0] != "routing.options":
        raise InputError(f"{flag}: {no_such_setting(name, names, '--')}")


def _add_value(values: dict[str, Any], config: Any, path: Sequence[str], text: str) -> None:
    """Parse a setting's text and put it into `values`, nested as `config` is; ValueError for a wrong text."""
    *sections, name = path
    for section in sections:
        config = getattr(config, section)
        values = values.setdefault(section, dict(config) if isinstance(config, dict) else {})
    of_options = isinstance(config, dict)  # `routing.options`, an extension's numbers
    kind = float if of_options else get_type_hints(type(config))[name]
    values[name] = _parse(text, kind)


def _parse(text: str, kind: Any) -> Any:
    """Text as JSON holds it for a field's type: None, a word of its Literal, or a value of its plain type."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if text == "none" and types.NoneType in kinds:
        return None
    words = {str(word): word for each in kinds if get_origin(each) is Literal for word in get_args(each)}
    if text in words:
        return words[text]
    others = [each for each in kinds if each is not types.NoneType and get_origin(each) is not Literal]
    if not others:
        raise ValueError(f"it is one of: {', '.join(words)}")
    try:
        return _parse_plain(text, others[0])
    except ValueError as error:
        raise ValueError(f"{error}, nor {' or '.join(words)}" if words else str(error)) from None


def _parse_plain(text: str, kind: Any) -> Any:
    """Text as a value of a type that is neither a union nor a Literal."""
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is tuple:
        if kinds[0] in (int, float):
            text = text.removeprefix("[").removesuffix("]")
        parts = [] if text == "none" else text.split(",")
        if kinds[-1] is not ... and len(parts) != len(kinds):
            raise ValueError(f"it takes {len(kinds)} values with commas between them")
        return [_parse(part, kinds[0]) for part in parts]
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
        raise ValueError(f"it is not {KINDS[origin or kind]}") from None
