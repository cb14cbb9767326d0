"""The command that trains a dense model and a mixture, and compares them."""

import argparse
from functools import partial
from pathlib import Path

from loriini.cli.parser import Add, document_options, extension_option, given, output_path


def quickstart_arguments(add: Add) -> None:
    """Arguments of `loriini quickstart`."""
    out = "output folder (%(default)s)"
    add("--out", type=output_path, default=Path("loriini-quickstart"), metavar="DIR", help=out)
    option = partial(add, default=argparse.SUPPRESS)  # Quickstart has the defaults
    documents = "your own documents, as for `loriini prepare` (text found on this machine)"
    option("--documents", nargs="+", metavar="PATH", help=documents)
    option("--design", metavar="NAME", help="the mixture to train beside the dense model (lory)")
    option("--size", metavar="NAME", help="size of both models: small, medium or large (small)")
    option("--steps", type=int, metavar="N", help="training steps of each model (those of the size)")
    option("--seed", type=int, help="seed of every random choice (0)")
    document_options(option)
    extension_option(add)


def quickstart(arguments: argparse.Namespace) -> None:
    """Train a dense model and a mixture on the same text and compare them."""
    from dataclasses import fields

    from loriini.quickstart import Quickstart, run_quickstart

    settings = given(arguments, [field.name for field in fields(Quickstart)])
    run_quickstart(Quickstart(**settings), arguments.out)
