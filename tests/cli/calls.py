"""Calls of the command line in this process: how they end, and what they are called on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loriini.cli import COMMANDS, main
from loriini.cli.command import find_commands, load_command, make_command

Captured = pytest.CaptureFixture[str]
TRAIN = ["--steps", "24", "--batch_size", "2", "--length", "64", "--routing.segment_length", "16"]
PROGRESS = re.compile(r"^(.*  \d+:\d\d:\d\d(, .* left)?|corpus \d/\d: .*)\n", re.MULTILINE)
WORDS = {"birds": ("wren", "owl", "heron", "finch"), "tools": ("saw", "plane", "chisel", "awl")}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it wrote, except for progress."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Made:
    """Documents, a corpus of them, and a finished run on it."""

    documents: Path
    corpus: Path
    run: Path


def parsed(words: Sequence[str]) -> Any:
    """The command that these words give."""
    name, *arguments = words
    return make_command(name, load_command(find_commands(COMMANDS)[name]), arguments)


def call(capsys: Captured, *arguments: object) -> Ended:
    capsys.readouterr()
    code = 0
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        code = int(end.code or 0)
    written = capsys.readouterr()
    return Ended(code, written.out, PROGRESS.sub("", written.err))


def assert_refused(ended: Ended, *parts: str) -> None:
    """Exit code 2, nothing on standard output, and one line on standard error that contains all `parts`."""
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("loriini: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    for part in parts:
        assert part in ended.err
