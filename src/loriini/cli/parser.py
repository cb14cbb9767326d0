"""The argument parser: argparse with one-line errors, and options that it does not know as overrides."""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from loriini import __version__
from loriini.cli.machine import check_output
from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.common.extension import load_extension
from loriini.common.hub import is_hub_id, model_folder

if TYPE_CHECKING:
    from loriini.data.read import Fields, OnError
    from loriini.evaluate.runs import EvaluationSettings

Add = Callable[..., Any]
"""`ArgumentParser.add_argument`."""
Arguments = Callable[[Add], None]
Command = Callable[[argparse.Namespace], None]
INVALID_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
"""argparse's message."""
MOST_BYTES = 64 << 20
"""Largest file that is read as the text of an argument."""
MODEL = "a run's folder, a Hugging Face model folder such as RUN/model, or a Hub id (ORG/NAME)"
SKIP = "predictions left out at the start of each instance (the longest first segment)"


class Parser(argparse.ArgumentParser):
    """argparse with its errors as InputError, and no abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise InputError, which names the nearest choice to a wrong one."""
        wrong = INVALID_CHOICE.search(message)
        hint = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise InputError(f"{message}; {hint}see `{self.prog} --help`")


class CommandParser(Parser):
    """The parser of one command; an option that it does not know is an override, `--dotted.name VALUE`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(conflict_handler="resolve", **settings)  # a command may replace --help

    def add_argument(self, *names: str, **settings: Any) -> Any:
        """As argparse does, but values of an option that takes several are added up when it is repeated."""
        if settings.get("nargs") == "+" and names[0].startswith("-"):
            settings.setdefault("action", "extend")
        return super().add_argument(*names, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Join each override with its value, which would otherwise be taken for a positional argument."""
        joined: list[str] = []
        for argument in args:
            last = joined[-1] if joined else ""
            option = last.startswith("--") and last != "--" and "=" not in last
            if option and last not in self._option_string_actions and not argument.startswith("--"):
                joined[-1] = f"{last}={argument}"
            else:
                joined.append(argument)
        return super().parse_known_args(joined, namespace)

    def refuse(self, argument: str) -> NoReturn:
        """Raise InputError for an argument that the command does not have; it names the nearest."""
        name = argument.partition("=")[0]
        options = [option for option in self._option_string_actions if option not in ("-h", "--help")]
        near = get_close_matches(name, options, 1)
        self.error(f"unknown argument {name!r}" + (f", the nearest is {near[0]}" if near else ""))


def output_path(text: str) -> Path:
    """A folder to write. InputError where there cannot be one."""
    return _output(text, is_file=False)


def output_file(*marks: str) -> Callable[[str], Path]:
    """A type of argument: a file to write, that which a link leads to; one of `marks`, if given, is in each.

    InputError where there cannot be one, and for a file without a mark: somebody's text, or a part of a run.
    """

    def parse(text: str) -> Path:
        path = _output(text, is_file=True)
        path = _output(os.path.realpath(path), is_file=True) if path.is_symlink() else path
        content = path.read_bytes() if path.exists() else b""
        if marks and content and not any(mark.encode() in content for mark in marks):
            raise InputError(f"--out {text}: exists, and is no output of this command; choose another file")
        return path

    return parse


def _output(text: str, is_file: bool) -> Path:
    if not text:
        raise InputError("--out is empty; give a path")
    check_output("--out", Path(text), is_file)
    return Path(text)


def check_models(*models: Path) -> None:
    """InputError for a folder without a trained model, before anything heavy is imported; Hub ids pass."""
    for model in models:
        if not is_hub_id(model):
            model_folder(model)


def text_argument(text: str) -> str:
    """Text that a tokenizer reads. InputError for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not UTF-8; convert it") from None
    return text


def read_text_file(path: Path) -> str:
    """The text of a file in UTF-8. InputError if it is not a regular file, too large, or not UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: a folder, pipe or device; give a file")
        if path.exists() and path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: larger than {MOST_BYTES >> 20} MiB; give a part of it")
        return path.read_text(encoding="utf-8-sig")  # a byte order mark is not text
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(f"{path}: not a readable text file ({reason}); check the path") from error


def model_argument(add: Add) -> None:
    """The argument of commands that use one trained model."""
    add("model", type=Path, metavar="RUN", help=MODEL)


def device_option(add: Add) -> None:
    """The option of commands that run a model."""
    add("--device", metavar="NAME", help="cpu, cuda or cuda:N (the GPU if there is one)")


def extension_option(add: Add) -> None:
    """The option of commands that know designs or models; what it names is loaded as it is parsed."""
    what = "your Python code, executed first, which adds scorers, selections, gates, losses or designs"
    add("--extension", type=load_extension, action="append", metavar="MODULE|FILE.py", help=what)


def on_error_option(add: Add, of: str = "") -> None:
    """The option for what to do about a flawed record (of an option, ` of --text`)."""
    add("--on-error", choices=("stop", "skip"), help=f"what to do with a flawed record{of} (stop)")


def on_error(arguments: argparse.Namespace) -> "OnError":
    """The value of `on_error_option`'s option, or its default."""
    said: OnError | None = arguments.on_error
    return said or "stop"


def evaluation_settings(
    arguments: argparse.Namespace, documents: Sequence[str], **others: Any
) -> "EvaluationSettings":
    """How `documents` are scored: what the commands that score them share, and `others`."""
    from loriini.evaluate.runs import EvaluationSettings

    return EvaluationSettings(
        documents=tuple(documents),
        fields=document_fields(arguments),
        on_error=on_error(arguments),
        skip=arguments.skip,
        instances=arguments.instances,
        document_mask=arguments.mask_documents,
        **others,
    )


def mask_option(add: Add) -> None:
    """The option of commands that score documents as a run with `document_mask` trains on them."""
    what = (
        "score the documents of an instance apart, as --document_mask trains on them; --skip is then of each "
        "document"
    )
    add("--mask-documents", action="store_true", help=what)


def document_options(add: Add) -> None:
    """Options of commands that read documents by domain."""
    add("--domain-field", metavar="NAME", help="field of a document's domain (domain)")
    add("--text-field", metavar="NAME", help="field of a document's text (text)")
    on_error_option(add)


def document_fields(arguments: argparse.Namespace) -> "Fields":
    """The fields that the options of `document_options` name."""
    from loriini.data.read import Fields

    named = {"text": arguments.text_field, "domain": arguments.domain_field}
    return Fields(**{field: name for field, name in named.items() if name is not None})


def given(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Those of the named arguments that were given, where their default is `argparse.SUPPRESS`.

    Several values are a tuple, as settings have them.
    """
    values = {name: value for name, value in vars(arguments).items() if name in names}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def refuse_given(arguments: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """InputError for the first of these arguments that was given, because it would have no effect.

    `names` are as a user types them: `--on-error`, or the name of a positional argument.
    """
    for name in names:
        value = getattr(arguments, name.strip("-").replace("-", "_"), None)
        if value is None or value is False or value == []:
            continue
        typed = " ".join(map(str, value)) if isinstance(value, list) else value
        raise InputError(f"{name if name.startswith('--') else typed}: {why}")


def summary(command: Command) -> str:
    """What a list of commands says about one: the first line of its docstring."""
    return (command.__doc__ or "").partition("\n")[0]


def make_parser(commands: Mapping[Command, Arguments]) -> Parser:
    """The parser of all commands, each named for its function; `commands` maps it to one that adds arguments.

    The function's docstring is the command's help.
    """
    parser = Parser(prog="loriini", description="Pre-train mixture-of-experts language models.")
    parser.add_argument("--version", action="version", version=f"loriini {__version__}")
    added = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=CommandParser)
    for run, add_arguments in commands.items():
        assert run.__doc__
        command = added.add_parser(run.__name__, help=summary(run), description=run.__doc__)
        command.set_defaults(run=run, parser=command)
        add_arguments(command.add_argument)
    return parser
