"""The command that converts a corpus to another program's format, or back."""

import argparse
from functools import partial
from pathlib import Path

from loriini.cli.parser import Add, given, output_path, refuse_given
from loriini.common.errors import InputError


def convert_arguments(add: Add) -> None:
    """Arguments of `loriini convert`."""
    add("source", type=Path, help="a corpus, a Megatron prefix, or parquet files with input_ids")
    add("--to", choices=("megatron", "dataset", "corpus"), required=True, help="the format to write")
    add("--out", type=output_path, required=True, metavar="DIR", help="folder to write")
    option = partial(add, default=argparse.SUPPRESS)
    option("--tokenizer", metavar="PATH", help="the tokenizer that made the tokens, for --to corpus")
    option(
        "--length",
        type=int,
        metavar="TOKENS",
        help="context of an instance in tokens, for --to corpus (1024)",
    )


def convert(arguments: argparse.Namespace) -> None:
    """Convert a corpus to another program's format, or another program's tokens to a corpus."""
    from loriini.data.convert.corpus_export import CORPUS_FORMATS, export_corpus
    from loriini.data.convert.corpus_import import import_corpus
    from loriini.data.prepare.prepare import open_corpus
    from loriini.data.prepare.verify import explained_damage

    of_import = given(arguments, ("tokenizer", "length"))
    if arguments.to in CORPUS_FORMATS:
        why = f"has no effect with --to {arguments.to}; leave it out"
        refuse_given(arguments, ("--tokenizer", "--length"), why)
        with explained_damage(arguments.source):
            print(export_corpus(open_corpus(arguments.source), arguments.to, arguments.out))
    elif not of_import.get("tokenizer"):
        raise InputError("--to corpus needs --tokenizer PATH, the one that made the tokens")
    else:
        corpus = import_corpus(arguments.out, arguments.source, **of_import)
        print(f"{corpus.folder}: {len(corpus.instances):,} instances of {corpus.instances.length:,}")
