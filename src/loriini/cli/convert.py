"""The command that converts a corpus to another program's format, or back."""

import argparse
from functools import partial
from pathlib import Path

from loriini.cli.parser import Add, given, output_path, refuse_given
from loriini.common.errors import InputError


def convert_arguments(add: Add) -> None:
    """Arguments of `loriini convert`."""
    add("source", type=Path, help="a corpus; with --from, a Megatron prefix, or parquet files with input_ids")
    add("--to", choices=("megatron", "parquet"), help="the format to write a corpus in")
    add("--from", dest="form", choices=("megatron", "hf"), help="the format to make a corpus from")
    add("--out", type=output_path, required=True, metavar="DIR", help="folder to write")
    option = partial(add, default=argparse.SUPPRESS)
    option("--tokenizer", metavar="PATH", help="the tokenizer that made the tokens, with --from")
    option("--length", type=int, metavar="TOKENS", help="context of an instance, with --from (1024)")


def convert(arguments: argparse.Namespace) -> None:
    """Convert a corpus to another program's format, or another program's tokens to a corpus."""
    from loriini.data.convert.corpus_export import export_corpus
    from loriini.data.convert.corpus_import import import_corpus
    from loriini.data.prepare.prepare import open_corpus
    from loriini.data.prepare.verify import explained_damage

    of_import = given(arguments, ("tokenizer", "length"))
    if bool(arguments.to) == bool(arguments.form):
        raise InputError("give one of --to and --from, the format to write or to read")
    if arguments.to:
        refuse_given(arguments, ("--tokenizer", "--length"), "has no effect with --to; leave it out")
        with explained_damage(arguments.source):
            print(export_corpus(open_corpus(arguments.source), arguments.to, arguments.out))
    elif not of_import.get("tokenizer"):
        raise InputError("--from needs --tokenizer PATH, the one that made the tokens")
    else:
        corpus = import_corpus(arguments.out, arguments.source, arguments.form, **of_import)
        print(f"{corpus.folder}: {len(corpus.instances):,} instances of {corpus.instances.length:,}")
