"""A command is a documented dataclass: its docstring is its help, its fields are its options, `run` does it.

@dataclass(frozen=True)
class Longest:
    '''Print the longest documents of a corpus.'''

    corpus: Annotated[Path, Option("DIR", positional=True)]
    '''The corpus's folder.'''
    most: Count = 10
    '''Documents to print.'''

    def run(self) -> None: ...

Every field is checked against its type (`common.checks`). A field that is a dataclass of settings brings the
options of its fields, or of some (`Option.only`). `run` may return an exit code. Other packages add
commands by entry points of the group `loriini.commands`.
"""

import argparse
import ast
import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

from loriini import __version__
from loriini.common.checks import as_argument, check_fields, option_of
from loriini.common.errors import InputError
from loriini.common.extension import load_extension
from loriini.common.options import Option, field_meanings, type_text

GROUP = "loriini.commands"
"""Entry points of commands: each a dataclass with `run`."""
EXTENSION = "Your Python code, executed first, which adds scorers, selections, gates, losses or designs."


@dataclass(frozen=True)
class _Field:
    """A field of a command, or of its settings, as the command line sees it."""

    name: str
    hint: Any
    """Its type, without annotations and None."""
    option: Option
    default: Any
    """MISSING if there is none."""
    meaning: str

    @property
    def is_settings(self) -> bool:
        return is_dataclass(self.hint) and not hasattr(self.hint, "parse")


def _fields(kind: type) -> Iterator[_Field]:
    hints, meanings = get_type_hints(kind, include_extras=True), field_meanings(kind)
    for each in fields(kind):
        hint, marks = _plain(hints[each.name])
        option = next((mark for mark in marks if isinstance(mark, Option)), Option())
        default = each.default
        if each.default_factory is not MISSING and not is_dataclass(hint):
            default = each.default_factory()
        yield _Field(each.name, hint, option, default, meanings.get(each.name, ""))


def _plain(hint: Any) -> tuple[Any, list[Any]]:
    """A type without annotations and None, and the annotations; `str` for a union of several types."""
    marks: list[Any] = []
    while (origin := get_origin(hint)) in (Annotated, Union, types.UnionType):
        if origin is Annotated:
            hint, *more = get_args(hint)
            marks += more
        else:
            kinds = [kind for kind in get_args(hint) if kind is not types.NoneType]
            hint = kinds[0] if len(kinds) == 1 else str
    return hint, marks


class Parser(argparse.ArgumentParser):
    """argparse with its errors as InputError."""

    def error(self, message: str) -> NoReturn:
        """Raise InputError in place of printing the usage and exiting."""
        raise InputError(f"{message}; see `{self.prog} --help`")


class CommandParser(Parser):
    """The parser of one command."""

    def __init__(self, name: str, kind: type) -> None:
        about = inspect.getdoc(kind)
        super().__init__(prog=f"loriini {name}", description=about, add_help=False, allow_abbrev=False)
        self.kind = kind
        self.add_argument("-h", "--help", action=_Help, help="Show this help.")
        self.rest = self._add_fields(kind, None)
        self.add_argument(
            "--extension",
            action="append",
            type=load_extension,
            default=argparse.SUPPRESS,
            metavar="MODULE|FILE.py",
            help=EXTENSION,
        )

    def _add_fields(self, kind: type, only: tuple[str, ...] | None) -> str | None:
        """Add an option for each field; returns the field that collects all other options, if any.

        Fields of the same name in several dataclasses share one option, which sets all of them.
        """
        rest = None
        for field in _fields(kind):
            if only is not None and field.name not in only:
                continue
            if option_of(field.name) in self._option_string_actions:
                continue
            if field.is_settings:
                self._add_fields(field.hint, field.option.only)
            elif field.option.rest:
                rest = field.name
            else:
                self._add_field(field)
        return rest

    def _add_field(self, field: _Field) -> None:
        names = [field.name if field.option.positional else option_of(field.name)]
        shown = field.default not in (MISSING, None, False, (), "", {})
        default = f" ({as_argument(field.default)})" if shown else ""
        settings: dict[str, Any] = {"default": argparse.SUPPRESS}
        if not field.option.positional:
            settings["dest"] = field.name
        settings["help"] = f"{field.meaning}{default}".replace("%", "%%").replace("`", "")
        if field.hint is bool:
            self.add_argument(*names, action="store_true", **settings)
            return
        item, parse, several = field.hint, field.option.parse, False
        if get_origin(field.hint) is tuple and parse is None:
            item, several = get_args(field.hint)[0], True
        elif isinstance(get_origin(field.hint), type) and issubclass(get_origin(field.hint), Mapping):
            item, parse, several = str, None, True  # kept as texts; `option.parse` takes them together
        settings["type"] = partial(_value, item, parse)
        settings["metavar"] = field.option.metavar or type_text(item)
        optional = field.default is not MISSING
        if field.option.positional:
            settings["nargs"] = ("*" if optional else "+") if several else "?" if optional else None
        else:
            settings |= {"required": not optional} | ({"nargs": "+", "action": "extend"} if several else {})
        self.add_argument(*names, **settings)

    def values(self, arguments: list[str]) -> dict[str, Any]:
        """The given values, by field. InputError for an unknown argument."""
        joined: list[str] = []
        for argument in arguments:  # join an override and its value, else that looks positional
            last = joined[-1] if joined else ""
            option = last.startswith("--") and last != "--" and "=" not in last
            if option and last not in self._option_string_actions and not argument.startswith("--"):
                joined[-1] = f"{last}={argument}"
            else:
                joined.append(argument)
        namespace, others = self.parse_known_args(joined)
        values = vars(namespace)
        values.pop("extension", None)
        for other in others:
            if not (self.rest and other.startswith("--")):
                name = other.partition("=")[0]
                options = [each for each in self._option_string_actions if each not in ("-h", "--help")]
                near = get_close_matches(name, options, 1)
                self.error(f"unknown argument {name!r}" + (f", the nearest is {near[0]}" if near else ""))
        return values | ({self.rest: tuple(others)} if self.rest else {})


class _Help(argparse.Action):
    """`--help`, followed by the command's `more_help` for the arguments given before it."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        assert isinstance(parser, CommandParser)
        more = getattr(parser.kind, "more_help", None)
        print(parser.format_help() + (f"\n{more(vars(namespace))}" if more else ""), end="")
        parser.exit()


def _value(kind: Any, parse: Any, text: str) -> Any:
    """Parse a text into a value of this type."""
    if parse := parse or getattr(kind, "parse", None):
        return parse(text)
    try:
        return kind(text) if kind in (int, float, Path) else text
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {type_text(kind)}") from None


def make_command(name: str, kind: type, arguments: list[str]) -> Any:
    """The command with its arguments' values. InputError for a wrong one."""
    values = CommandParser(name, kind).values(arguments)
    command = _build(kind, values)
    check_fields(command, dashed=True)
    return command


def _build(kind: type, values: Mapping[str, Any]) -> Any:
    arguments = dict[str, Any]()
    for field in _fields(kind):
        if field.is_settings:
            arguments[field.name] = _build(field.hint, values)
        elif field.name in values:
            value = values[field.name]
            together = field.option.parse or tuple
            arguments[field.name] = together(value) if isinstance(value, list) else value
    return kind(**arguments)


def find_commands(ours: Mapping[str, str]) -> dict[str, EntryPoint]:
    """Our commands, then those of installed packages, by name; imports none."""
    found = {name: EntryPoint(name, value, GROUP) for name, value in ours.items()}
    return found | {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in found}


def load_command(entry: EntryPoint) -> type:
    """The dataclass of a command. InputError if it cannot be imported or is not a dataclass with `run`."""
    try:
        kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"command {entry.name}: {entry.value} cannot be imported ({error})") from error
    if not (isinstance(kind, type) and is_dataclass(kind) and hasattr(kind, "run")):
        raise InputError(f"command {entry.name}: {entry.value} is not a dataclass with a method `run`")
    return kind


def summary(entry: EntryPoint) -> str:
    """The first line of a command's docstring, read from its source so that nothing is imported."""
    try:
        spec = find_spec(entry.module)
        tree = ast.parse(Path(str(spec and spec.origin)).read_bytes())
    except (ImportError, OSError, SyntaxError, ValueError):
        return f"not found: {entry.value}"
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == entry.attr)
    return next(((ast.get_docstring(node) or "").partition("\n")[0] for node in classes), "")


def list_parser(commands: Mapping[str, EntryPoint]) -> Parser:
    """The parser of arguments that begin with no command: `--help`, `--version` and wrong names."""
    about = "Pre-train mixture-of-experts language models."
    parser = Parser(prog="loriini", description=about, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"loriini {__version__}")
    added = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, entry in commands.items():
        added.add_parser(name, help=summary(entry).replace("%", "%%"))
    return parser
