"""Arguments that several commands have: places to write, models, texts."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

from loriini.common.atomic import unfinished
from loriini.common.errors import InputError
from loriini.common.folders import model_folder
from loriini.common.hub import is_hub_id
from loriini.common.options import Option

MOST_BYTES = 64 << 20
"""Largest file that is read as the text of an argument."""


def output_folder(text: str) -> Path:
    """A folder to write. InputError if nothing can be written there."""
    return _output(text, is_file=False)


def output_file(*marks: str) -> Callable[[str], Path]:
    """A parser for the path of a file to write; it follows links.

    InputError if it cannot be written, or if it exists and holds none of `marks`: it may be somebody's text,
    or a part of a run.
    """

    def parse(text: str) -> Path:
        path = _output(text, is_file=True)
        path = _output(os.path.realpath(path), is_file=True) if path.is_symlink() else path
        start = b""
        with suppress(FileNotFoundError), open(path, "rb") as file:
            start = file.read(1 << 20)  # every output has its mark near the beginning
        if start and not any(mark.encode() in start for mark in marks):
            raise InputError(f"--out {text}: exists, and is no output of this command; choose another file")
        return path

    return parse


def text_argument(text: str) -> str:
    """An argument's text, read as UTF-8 whatever the locale. InputError for bytes that are not."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        raise InputError("the text is not UTF-8; convert it") from None


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


OutFolder = Annotated[Path, Option("DIR", parse=output_folder)]
Text = Annotated[str, Option("TEXT", parse=text_argument)]


def check_models(*models: Path) -> None:
    """InputError for a folder without a trained model, before anything heavy is imported; Hub ids pass."""
    for model in models:
        if not is_hub_id(model):
            model_folder(model)


def _output(text: str, is_file: bool) -> Path:
    """The path of `--out`, checked before any work is done: InputError if it cannot be written.

    A file is written under another name, then renamed. That would replace a pipe or device: it is refused.
    """
    if not text:
        raise InputError("--out is empty; give a path")
    path = Path(text)
    what = f"--out {path}"
    try:
        str(path).encode()  # some libraries cannot write other names
        for name in (path, unfinished(path)) if is_file else (path,):
            with suppress(FileNotFoundError):
                os.stat(name)
        there = next(each for each in (path, *path.parents, Path.cwd()) if each.exists())
        if there == path and is_file != path.is_file():
            wrong = "is a folder, pipe or device; give a file" if is_file else "is a file; give a folder"
            raise InputError(f"{what}: {wrong}")
        with TemporaryFile(dir=path.parent if there == path and is_file else there):
            pass
    except UnicodeEncodeError:
        raise InputError(f"{what}: the name is not UTF-8; choose another") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(f"{what}: nothing can be written there ({reason}); choose another place") from None
    return path
