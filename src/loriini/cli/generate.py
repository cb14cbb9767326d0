"""The command that continues text."""

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from loriini.cli.parser import (
    Add,
    check_models,
    device_option,
    extension_option,
    given,
    model_argument,
    refuse_given,
    text_argument,
)
from loriini.common.errors import InputError


def generate_arguments(add: Add) -> None:
    """Arguments of `loriini generate`."""
    model_argument(add)
    add(
        "--prompt",
        type=text_argument,
        metavar="TEXT",
        help="text to continue; - reads it from standard input",
    )
    interactive = "continue each line of standard input; Ctrl-C stops a continuation, Ctrl-D ends"
    add("--interactive", action="store_true", help=interactive)
    option = partial(add, default=argparse.SUPPRESS)  # Generation has the defaults
    option("--max-new-tokens", type=int, metavar="N", help="longest continuation (64)")
    option("--greedy", action="store_true", help="take the likeliest token instead of sampling")
    option("--temperature", type=float, metavar="T", help="divides the logits; lower is greedier (0.8)")
    option("--top-k", type=int, metavar="K", help="sample from the K likeliest tokens; 0: from all (50)")
    option("--top-p", type=float, metavar="P", help="of these, keep the likeliest that together reach P (1)")
    option("--seed", type=int, help="seed of the sampling (0)")
    routing = "prompt: one decision, from the prompt; segment: a new one after each full segment (prompt)"
    option("--routing", choices=("prompt", "segment"), help=routing)
    option("--label", metavar="NAME", help="domain whose expert writes, for a model that routes by label")
    device_option(add)
    extension_option(add)


def generate(arguments: argparse.Namespace) -> None:
    """Continue a prompt, or each line of standard input."""
    if (arguments.prompt is None) != arguments.interactive:
        raise InputError("give --prompt TEXT or --interactive, one of them")
    check_models(arguments.model)
    from dataclasses import fields

    from loriini.common.hardware import autocast
    from loriini.common.progress import warn
    from loriini.evaluate.samples import Generation, check_generation, check_room, continue_text
    from loriini.model.generate.routing_inputs import refuse_unused_label
    from loriini.model.weights.loading import load_model, run_precision

    settings = given(arguments, [field.name for field in fields(Generation)])
    how = Generation(**settings)
    if "greedy" in settings:
        of_sampling = ("--temperature", "--top-k", "--top-p", "--seed")
        refuse_given(arguments, of_sampling, "is for sampling; leave it out, or --greedy")
    model, tokenizer = load_model(arguments.model, arguments.device)
    refuse_unused_label(how.label, model.config)
    check_generation(model, how)

    def write(text: str) -> None:
        print(text, end="", flush=True)

    def answer(prompt: str) -> None:
        room = check_room(model.config, tokenizer, text_argument(prompt), how)
        if "max_new_tokens" in settings and how.max_new_tokens > room:
            asked = f"--max-new-tokens {how.max_new_tokens}"
            warn(f"{asked}: the context has room for {room:,}; beyond it, models write worse")
        write(prompt)
        with autocast(run_precision(arguments.model), model.device):
            continue_text(model, tokenizer, prompt, how, write)
        write("\n")

    if arguments.interactive:
        _answer_lines(answer)
    else:
        answer(sys.stdin.read() if arguments.prompt == "-" else arguments.prompt)


def _answer_lines(answer: Callable[[str], None]) -> None:
    """Call `answer` with each line of standard input; Ctrl-C ends a call, or clears the line being typed."""
    from loriini.common.progress import warn

    with suppress(ImportError):
        import readline  # noqa: F401  lets `input` edit lines
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        try:
            line = input("> " if on_terminal else "")
        except EOFError:
            return
        except KeyboardInterrupt:
            if not on_terminal:
                raise
            print()
            continue
        if on_terminal and not line.strip():
            continue
        try:
            answer(line)
        except InputError as error:
            warn(error)
        except KeyboardInterrupt:
            print()
