"""What a training's process does in tests of processes; it imports little."""

import os
from collections.abc import Callable
from typing import Any

import loriini.__main__


def run_instead(program: str, run_command: Callable[..., None], arguments: list[str], *others: Any) -> None:
    """`run_command` with a program in place of the command line, in the training's folder."""
    os.chdir(arguments[-1])
    loriini.__main__.main = lambda _: exec(program, {})
    run_command(arguments, *others)
