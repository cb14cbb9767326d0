"""`--dotted.name value` on the command line: changes to a run's settings, and the list of what can change."""

import ast
import inspect
import json
import re
import textwrap
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from loriini.errors import InputError
from loriini.fields import as_argument
from loriini.routing import DESIGNS, RoutingConfig
from loriini.routing.design import find_design
from loriini.train.run import Run

Config = TypeVar("Config")
Changes = dict[str, Any]
OPTIONS = {"corpus", "init", "init_digest"}
"""Settings that are options of the command line, or follow from them, instead of overrides."""

COMMON_NAMES = {
    "lr": "optimizer.learning_rate",
    "wd": "optimizer.weight_decay",
    "max_steps": "steps",
    "seq_len": "length",
    "seq_length": "length",
    "context_length": "length",
    "grad_clip": "optimizer.clip",
}
"""Settings by what other programs call them."""


@dataclass(frozen=True)
class Override:
    """A setting of a run as the command line takes it: `--name value`."""

    name: str
    """Dotted, without the leading dashes."""
    type: str
    default: str
    meaning: str


def describe_overrides(run: Run) -> list[Override]:
    """Every setting that the command line can change in `run`, with its value there as the default.

    Meanings are the docstrings of the dataclasses' fields. The settings of the run itself come first.
    """
    return list(_describe(run, ""))


def _describe(config: Any, section: str) -> Iterator[Override]:
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
        yield from _describe(part, f"{section}{name}.")


def type_text(hint: Any) -> str:
    """What the command line takes for a field of this type: `int`, `a|b`, `path,…`, `float|none`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is tuple:
        return ",".join("…" if kind is ... else type_text(kind) for kind in arguments)
    if origin in (Union, types.UnionType):
        return "|".join(map(type_text, arguments))
    names = {bool: "true|false", str: "text", dict: "json", types.NoneType: "none"}
    return names.get(hint, hint.__name__.lower())


def field_meanings(kind: type) -> dict[str, str]:
    """The meaning of a dataclass's fields: the string below each."""
    meanings = {}
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for node, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(below.value, ast.Constant)
            meanings[ast.unparse(node.target)] = " ".join(str(below.value.value).split())
    return meanings


def override(config: Config, arguments: Sequence[str]) -> Config:
    """A frozen dataclass with `--dotted.name value` pairs applied; InputError names a wrong one.

    A section is checked once all its overrides are applied, so their order does not matter. `--routing NAME`
    starts from the design of that name with the segment length that the run has; further overrides change its
    fields.
    """
    changes: Changes = {}
    given = list(override_pairs(arguments))
    for flag, text in given:
        name = flag.removeprefix("--").replace("-", "_")
        _check_name(type(config), name, flag)
        try:
            _add_change(changes, type(config), name.split("."), text)
        except (ValueError, TypeError) as error:
            raise InputError(f"{flag} {text}: {error}") from error
    return cast(Config, _apply(config, changes, given))


def override_pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--name value` and `--name=value` as pairs of a flag and its value. InputError for anything else."""
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("--"):
            raise InputError(f"unexpected argument {argument!r}; overrides look like --model.num_experts 8")
        flag, equals, text = argument.partition("=")
        value = text if equals else next(left, None)
        if value is None:
            raise InputError(f"{flag} has no value; overrides come in pairs, --model.num_experts 8")
        yield flag, value


def overrides_of(flag: str, arguments: Sequence[str]) -> list[str]:
    """Those of the overrides that are of one setting, `--name`."""
    return [f"{flag}={value}" for found, value in override_pairs(arguments) if found == flag]


def _check_name(kind: type, name: str, flag: str) -> None:
    """InputError for a setting that a dataclass does not have; it names the nearest."""
    names = [known for known in setting_names(kind) if known not in OPTIONS]
    if name not in names:
        raise InputError(f"{flag}: {no_such_setting(name, names, '--')}")


def no_such_setting(name: str, names: Sequence[str], dashes: str = "") -> str:
    """That a run has no setting `name`, and which of the dotted `names` are nearest to it."""
    nearest = ", ".join(f"{dashes}{found}" for found in _nearest(name, names))
    hint = f"; the nearest {'are' if ',' in nearest else 'is'} {nearest}" if nearest else ""
    return f"no such setting{hint}; `loriini train RECIPE --help` lists all"


def _nearest(name: str, names: Sequence[str]) -> list[str]:
    """The setting of this name in a section; else those with all its words, at most three; else one alike.

    Sections are no settings; the words of a section count where no setting has them all by itself. Before all
    of these comes the setting that other programs call so.
    """
    if name in COMMON_NAMES:
        return [COMMON_NAMES[name]]
    sections = {known.rpartition(".")[0] for known in names} - {"routing"}  # which takes a design
    settings = [known for known in names if known not in sections]
    last = {known: known.rpartition(".")[2] for known in settings}
    words = set(name.rpartition(".")[2].split("_"))
    same = [known for known in settings if known.endswith(f".{name}")]
    with_words = [known for known in settings if words <= set(last[known].split("_"))]
    in_section = [known for known in settings if words <= set(re.split(r"[._]", known))]
    alike = get_close_matches(name.rpartition(".")[2], last.values(), 1, 0.7)
    return (
        same
        or get_close_matches(name, with_words or in_section, 3, 0)
        or get_close_matches(name, settings, 1)
        or [known for known in settings if last[known] in alike]
    )


def setting_names(kind: Any, section: str = "") -> Iterator[str]:
    """The dotted names of a dataclass's settings and sections."""
    for name, hint in get_type_hints(kind).items():
        yield f"{section}{name}"
        if is_dataclass(hint):
            yield from setting_names(hint, f"{section}{name}.")


def _add_change(changes: Changes, kind: Any, path: Sequence[str], text: str) -> None:
    """Put a parsed value into the nested `changes`; ValueError for a wrong value."""
    name, *rest = path
    part = get_type_hints(kind)[name]
    if rest:
        _add_change(changes.setdefault(name, {}), part, rest, text)
    elif part is RoutingConfig:
        design = find_design(text).to_dict()
        del design["segment_length"]  # fits the run's context
        changes[name] = {**design, **changes.get(name, {})}
    else:
        changes[name] = _parse(text, part)


def _apply(config: Any, changes: Changes, given: Sequence[tuple[str, str]], section: str = "--") -> Any:
    """The changed dataclass; InputError names those of the `given` overrides that are of a wrong section."""
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
    """Text as `none` or one of the kinds' words, else as a value of the first kind."""
    if text == "none" and types.NoneType in kinds:
        return None
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if text in words:
        return text
    try:
        return _parse(text, kinds[0])
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
        kinds, parts = get_args(kind), [] if text == "none" else text.split(",")
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
        return json.loads(text) if kind is dict else kind(text)
    except ValueError:
        raise ValueError(f"it is not of type {type_text(kind)}") from None
