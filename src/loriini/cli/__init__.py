"""The command line: one function a command. It knows every room, and no room knows it."""

import os
import sys
from collections.abc import Sequence

from loriini.cli import corpus, models, training
from loriini.cli.parser import Arguments, Command, make_parser
from loriini.errors import InputError, Unfinished

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
    try:
        arguments, overrides = make_parser(COMMANDS).parse_known_args(argv)
        if overrides and arguments.run is not training.train:
            raise InputError(f"unknown argument {overrides[0]!r}; see `loriini --help`")
        arguments.overrides = overrides
        arguments.run(arguments)
        sys.stdout.flush()
    except InputError as error:
        print(f"loriini: {error}", file=sys.stderr)
        sys.exit(WRONG_INPUT)
    except Unfinished as note:
        print(f"loriini: {note}", file=sys.stderr)
    except KeyboardInterrupt as error:
        print(f"\ninterrupted; {str(error) or 'the same command goes on where it stopped'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OUR_FAULT)
