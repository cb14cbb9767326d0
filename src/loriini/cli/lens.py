"""The command that shows the experts and the loss of each token of a text."""

import argparse
from pathlib import Path

from loriini.cli.parser import (
    Add,
    check_models,
    device_option,
    extension_option,
    model_argument,
    output_file,
    read_text_file,
    text_argument,
)
from loriini.common.errors import InputError


def lens_arguments(add: Add) -> None:
    """Arguments of `loriini lens`."""
    model_argument(add)
    add("--text", type=Path, metavar="FILE", help="the text, from a file")
    add("--prompt", type=text_argument, metavar="TEXT", help="the text itself")
    add("--dense", type=Path, metavar="RUN", help="a dense model, to show its loss beside the mixture's")
    add("--label", metavar="NAME", help="the text's domain, for a model that routes by label")
    add("--tokens", type=int, metavar="N", help="tokens of the text to read, at most (4096)")
    device_option(add)
    out = "the page to write (RUN/lens.html; for a model that is not a run it must be given)"
    add("--out", type=output_file("Loriini lens"), metavar="FILE", help=out)
    extension_option(add)


def lens(arguments: argparse.Namespace) -> None:
    """Write a page that shows the experts and the loss of each token of a text."""
    if (arguments.text is None) == (arguments.prompt is None):
        raise InputError("give --text FILE or --prompt TEXT, one of them")
    check_models(arguments.model, *([arguments.dense] if arguments.dense else []))
    from loriini.analyze.lens import LENS, MOST_TOKENS, write_lens
    from loriini.common.hub import page_folder

    out = arguments.out or page_folder(arguments.model, "--out FILE") / LENS
    page = write_lens(
        arguments.model,
        arguments.prompt if arguments.text is None else read_text_file(arguments.text),
        out,
        dense=arguments.dense,
        label=arguments.label,
        device=arguments.device,
        tokens=MOST_TOKENS if arguments.tokens is None else arguments.tokens,
    )
    print(page)
