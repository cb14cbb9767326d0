"""The command line. A command is a documented dataclass with `run` (`cli.command`), imported when it is used.

Commands import the packages that do the work inside `run` where that keeps `--help` quick.
"""

import os
import sys
from collections.abc import Sequence

from loriini.cli.command import find_commands, list_parser, load_command, make_command
from loriini.cli.machine import again, one_line, prepare_process
from loriini.cli.output import print_once
from loriini.common.errors import InputError, Unfinished, WorkerDied

WRONG_INPUT, INTERRUPTED, BUG = 2, 130, 1
READER_GONE = 141
"""128 + SIGPIPE, as for any program whose pipe is closed, for example by `| head`."""

COMMANDS = {
    "quickstart": "loriini.cli.compare:Quickstart",
    "designs": "loriini.cli.designs:Designs",
    "recipes": "loriini.cli.designs:Recipes",
    "prepare": "loriini.cli.corpora:Prepare",
    "inspect": "loriini.cli.corpora:Inspect",
    "convert": "loriini.cli.corpora:Convert",
    "train": "loriini.cli.train:Train",
    "evaluate": "loriini.cli.evaluate:Evaluate",
    "compare": "loriini.cli.compare:Compare",
    "analyze": "loriini.cli.models:Analyze",
    "lens": "loriini.cli.models:Lens",
    "generate": "loriini.cli.models:Generate",
    "export": "loriini.cli.models:Export",
    "bench": "loriini.cli.bench:Bench",
}
"""Our commands, each with its module and dataclass; other packages add theirs by entry points."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; the exit code says how it ended.

    0 done or saved at its deadline, 1 a bug or a dead worker process, 2 wrong input or an error of the
    machine (disk, memory), 130 interrupted, 141 output pipe closed; a command may return its own.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    kind: type | None = None
    try:
        prepare_process()
        commands = find_commands(COMMANDS)
        try:
            if not arguments or arguments[0] not in commands:
                list_parser(commands).parse_args(arguments)
            kind = load_command(commands[arguments[0]])
            code = make_command(arguments[0], kind, arguments[1:]).run()
        finally:
            print(end="", flush=True)  # here, where a closed pipe is caught
    except InputError as error:
        _fail(f"loriini: {error}", WRONG_INPUT)
    except WorkerDied as error:
        _fail(f"loriini: {error}", BUG)
    except Unfinished as note:
        print_once(f"loriini: {note}", sys.stderr)
    except KeyboardInterrupt as error:
        _fail(f"\ninterrupted; {str(error) or again(kind)}", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        message = one_line(error, kind)
        if message is None:
            raise
        _fail(f"loriini: {message}", WRONG_INPUT)
    else:
        if code:
            sys.exit(code)


def _fail(message: str, code: int) -> None:
    print_once(message, sys.stderr, every_node=True)
    sys.exit(code)
