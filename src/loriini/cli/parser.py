"""argparse, as these commands want it."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from loriini.errors import InputError

Add = Callable[..., Any]
"""`ArgumentParser.add_argument`."""
Arguments = Callable[[Add], None]
Command = Callable[[argparse.Namespace], None]


class Parser(argparse.ArgumentParser):
    """argparse, with its complaints as the one line that every wrong input gets, and no abbreviations."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise InputError."""
        raise InputError(f"{message}; see `{self.prog} --help`")


class CommandParser(Parser):
    """The parser of a command, to which an option that it does not know is an override."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the value of an override with its name, lest it be taken for a positional argument."""
        joined: list[str] = []
        for argument in args:
            last = joined[-1] if joined else ""
            override = last.startswith("--") and "=" not in last and last not in self._option_string_actions
            if override and not argument.startswith("--"):
                joined[-1] = f"{last}={argument}"
            else:
                joined.append(argument)
        return super().parse_known_args(joined, namespace)


def output(text: str) -> Path:
    """A path to write to. InputError for one that is not UTF-8: not every library can write there."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"--out {text}: the name is not UTF-8; choose another") from None
    return Path(text)


def make_parser(commands: Mapping[Command, Arguments]) -> Parser:
    """A parser of commands, each named as its function, with the arguments its other function adds."""
    parser = Parser(prog="loriini", description="Pre-train mixture-of-experts language models.")
    added = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=CommandParser)
    for run, add_arguments in commands.items():
        assert run.__doc__
        command = added.add_parser(run.__name__, help=run.__doc__, description=run.__doc__)
        command.set_defaults(run=run)
        add_arguments(command.add_argument)
    return parser
