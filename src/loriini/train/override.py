"""`--dotted.name value` from the command line onto a frozen dataclass of dataclasses."""

import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loriini.errors import InputError
from loriini.routing import DESIGNS, RoutingConfig

Config = TypeVar("Config")
Changes = dict[str, Any]


def override(config: Config, arguments: Sequence[str]) -> Config:
    """A frozen dataclass with `--dotted.name value` pairs applied; InputError names a wrong one.

    A part is checked when all its overrides are in, so their order does not matter. `--routing NAME` takes a
    design of that name, of which further overrides change fields.
    """
    pairs = [part for a in arguments for part in (a.split("=", 1) if a.startswith("--") else [a])]
    if len(pairs) % 2:
        raise InputError(f"{pairs[-1]} has no value; overrides come in pairs, --model.num_experts 8")
    changes: Changes = {}
    for flag, text in zip(pairs[::2], pairs[1::2], strict=True):
        if not flag.startswith("--"):
            raise InputError(f"unexpected argument {flag!r}; overrides look like --model.num_experts 8")
        path = flag.removeprefix("--").replace("-", "_").split(".")
        try:
            _note(changes, type(config), path, text)
        except (ValueError, TypeError) as error:
            raise InputError(f"{flag} {text}: {error}") from error
    try:
        changed: Config = _apply(config, changes)
    except ValueError as error:
        raise InputError(f"{' '.join(arguments)}: {error}") from error
    return changed


def _note(changes: Changes, kind: Any, path: Sequence[str], text: str) -> None:
    """Put a parsed value into the nested `changes`; ValueError for a name or a value that cannot be."""
    name, *rest = path
    names = [field.name for field in fields(kind)]
    if name not in names:
        raise ValueError(f"there is no {name!r} here; there are: {', '.join(names)}")
    part = get_type_hints(kind)[name]
    if rest:
        if not is_dataclass(part):
            raise ValueError(f"{name!r} has no parts")
        _note(changes.setdefault(name, {}), part, rest, text)
    elif part is RoutingConfig:
        if text not in DESIGNS:
            raise ValueError(f"there is no such design; there are: {', '.join(DESIGNS)}")
        changes[name] = {**DESIGNS[text].to_dict(), **changes.get(name, {})}
    else:
        changes[name] = _parse(text, part)


def _apply(config: Any, changes: Changes) -> Any:
    return replace(
        config,
        **{
            name: _apply(getattr(config, name), value) if isinstance(value, dict) else value
            for name, value in changes.items()
        },
    )


def _parse(text: str, kind: Any) -> Any:
    """Text as a value of a field's type."""
    origin = get_origin(kind)
    if origin is Literal:
        for choice in get_args(kind):
            if str(choice) == text:
                return choice
        raise ValueError(f"it is one of: {', '.join(map(str, get_args(kind)))}")
    if origin is tuple:
        kinds, parts = get_args(kind), text.split(",")
        if kinds[-1] is not ... and len(parts) != len(kinds):
            raise ValueError(f"it takes {len(kinds)} values with commas between them")
        return tuple(_parse(part, kinds[0]) for part in parts)
    if origin in (Union, types.UnionType):
        return None if text == "none" else _parse(text, get_args(kind)[0])
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("it is one of: true, false")
        return text == "true"
    if is_dataclass(kind):
        raise ValueError("it has parts; set one of them")
    return kind(text)
