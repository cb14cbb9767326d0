"""The command line: one function a command. It knows every room, and no room knows it."""

import errno
import io
import os
import sys
from collections.abc import Sequence

from loriini.cli import corpus, models, training
from loriini.cli.parser import Arguments, Command, make_parser
from loriini.cli.tell import tell
from loriini.errors import InputError, Unfinished, WorkerDied
from loriini.jobs.artifact import is_disk_full

WRONG_INPUT, INTERRUPTED, OUR_FAULT = 2, 130, 1

COMMANDS: dict[Command, Arguments] = {
    training.quickstart: training.quickstart_arguments,
    training.designs: training.designs_arguments,
    training.recipes: training.recipes_arguments,
    corpus.prepare: corpus.prepare_arguments,
    corpus.convert: corpus.convert_arguments,
    corpus.inspect: corpus.inspect_arguments,
    training.train: training.train_arguments,
    models.evaluate: models.evaluate_arguments,
    models.analyze: models.analyze_arguments,
    models.generate: models.generate_arguments,
    models.export: models.export_arguments,
    training.bench: training.bench_arguments,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; exits 0 done, 2 wrong input, 130 interrupted, 1 our fault."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # of a path that is no text, for example
    try:
        arguments, overrides = make_parser(COMMANDS).parse_known_args(argv)
        if overrides and arguments.run is not training.train:
            raise InputError(f"unknown argument {overrides[0]!r}; see `loriini --help`")
        arguments.overrides = overrides
        arguments.run(arguments)
        sys.stdout.flush()
    except InputError as error:
        tell(f"loriini: {error}", sys.stderr, every_node=True)
        sys.exit(WRONG_INPUT)
    except WorkerDied as error:
        tell(f"loriini: {error}", sys.stderr, every_node=True)
        sys.exit(OUR_FAULT)
    except Unfinished as note:
        tell(f"loriini: {note}", sys.stderr)
    except KeyboardInterrupt as error:
        reason = str(error) or "the same command goes on where it stopped"
        tell(f"\ninterrupted; {reason}", sys.stderr, every_node=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OUR_FAULT)
    except OSError as error:
        remedy = _remedy(error)
        if remedy is None:
            raise
        told = error.strerror or error.args[0]
        tell(f"loriini: {error.filename or 'the disk'}: {told}; {remedy}", sys.stderr, every_node=True)
        sys.exit(WRONG_INPUT)


def _remedy(error: OSError) -> str | None:
    """What the user can do about an error of the disk; None when it is of another kind."""
    if is_disk_full(error):
        return "free some space; the same command goes on where it stopped"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "allow it, or choose another place; the same command goes on where it stopped"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file is where a folder must be; choose another place, or remove it"
    return None
