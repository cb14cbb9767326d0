"""The command line: one module a command, with its function and a second that adds its arguments.

It imports every other package, inside the functions, so that `--help` answers at once; none imports it.
"""

import os
import sys
from collections.abc import Sequence

from loriini.cli import (
    analyze,
    bench,
    compare,
    convert,
    designs,
    evaluate,
    export,
    generate,
    inspect_corpus,
    lens,
    prepare,
    quickstart,
    reproduce,
    train,
)
from loriini.cli.machine import again, one_line, prepare_process
from loriini.cli.output import print_once
from loriini.cli.parser import Arguments, Command, make_parser
from loriini.common.errors import InputError, Unfinished, WorkerDied

WRONG_INPUT, INTERRUPTED, BUG_STATUS = 2, 130, 1
READER_GONE = 141
"""As for any program that SIGPIPE ends, such as one before `| head`."""

COMMANDS: dict[Command, Arguments] = {
    quickstart.quickstart: quickstart.quickstart_arguments,
    designs.designs: designs.designs_arguments,
    designs.recipes: designs.recipes_arguments,
    prepare.prepare: prepare.prepare_arguments,
    convert.convert: convert.convert_arguments,
    inspect_corpus.inspect: inspect_corpus.inspect_arguments,
    train.train: train.train_arguments,
    evaluate.evaluate: evaluate.evaluate_arguments,
    compare.compare: compare.compare_arguments,
    reproduce.reproduce: reproduce.reproduce_arguments,
    analyze.analyze: analyze.analyze_arguments,
    lens.lens: lens.lens_arguments,
    generate.generate: generate.generate_arguments,
    export.export: export.export_arguments,
    bench.bench: bench.bench_arguments,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. Exit codes: 0 done, 2 wrong input, 130 interrupted, 1 a bug.

    `loriini.__main__` calls it where SIGTERM and SIGHUP interrupt as Ctrl-C does.
    """
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv else ""
    try:
        prepare_process()
        try:
            _run(argv)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is caught
    except InputError as error:
        _fail(f"loriini: {error}", WRONG_INPUT)
    except WorkerDied as error:
        _fail(f"loriini: {error}", BUG_STATUS)
    except Unfinished as note:
        print_once(f"loriini: {note}", sys.stderr)
    except KeyboardInterrupt as error:
        _fail(f"\ninterrupted; {str(error) or again(command)}", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        message = one_line(error, command)
        if message is None:
            raise
        _fail(f"loriini: {message}", WRONG_INPUT)


def _run(argv: Sequence[str]) -> None:
    arguments, overrides = make_parser(COMMANDS).parse_known_args(argv)
    if overrides and arguments.run not in (train.train, compare.compare):
        arguments.parser.refuse(overrides[0])
    arguments.overrides = overrides
    arguments.run(arguments)


def _fail(message: str, code: int) -> None:
    print_once(message, sys.stderr, every_node=True)
    sys.exit(code)
