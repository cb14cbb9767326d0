"""Commands that use a trained model."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loriini.cli.parser import (
    Add,
    check_models,
    document_fields,
    document_options,
    given,
    on_error,
    output_file,
    output_path,
    read_text_file,
    refuse_given,
    text_argument,
)
from loriini.errors import InputError, printable

if TYPE_CHECKING:
    from loriini.evaluate.runs import RouterFree

MODEL = "a run's folder, or a Hugging Face model folder"
DEVICE = "cpu, cuda or cuda:N (the GPU if there is one)"


def evaluate_arguments(add: Add) -> None:
    """Arguments of `loriini evaluate`."""
    add("runs", type=Path, nargs="+", metavar="RUN", help="runs or model folders; several are compared")
    add("--documents", nargs="+", metavar="PATH", help="held-out text")
    document_options(add)
    add("--tasks", nargs="+", metavar="NAME", help="downstream tasks, or groups of them: see docs/tasks.md")
    add("--tasks-data", type=Path, metavar="DIR", help="local files of the tasks, in place of the Hub's data")
    add("--limit", type=int, metavar="N", help="questions of each task, at most (all)")
    add(
        "--num-fewshot",
        type=int,
        metavar="K",
        help="examples before each question (as the task or group says)",
    )
    add("--label", metavar="NAME", help="domain whose expert answers, for a model that routes by label")
    add("--length", type=int, metavar="TOKENS", help="tokens in an instance (the smallest context)")
    add("--skip", type=int, metavar="N", help="tokens left out of each instance (the longest first segment)")
    add("--instances", type=int, metavar="N", help="instances of each domain, at most (all)")
    masked = "keep the documents of an instance apart; --skip is of each document"
    add("--document-mask", action="store_true", help=masked)
    add(
        "--routing",
        choices=("training", "prompt", "segment"),
        help="how tokens are routed (training for --documents, prompt for --tasks)",
    )
    router_free = "replace the routers: select experts by the norm (1, 2 or inf) of their activations at NODE"
    add("--router-free", metavar="NODE[:NORM[:GATES]]", help=router_free)
    add("--device", metavar="NAME", help=DEVICE)
    add("--out", type=output_file, help="also write the JSON to this file")


def _router_free(arguments: argparse.Namespace) -> "RouterFree | None":
    """What --router-free says; None without it."""
    from loriini.evaluate.runs import RouterFree

    return None if arguments.router_free is None else RouterFree.parse(arguments.router_free)


def evaluate(arguments: argparse.Namespace) -> None:
    """Measure perplexity on held-out text, by domain, or run downstream tasks."""
    if bool(arguments.documents) == bool(arguments.tasks):
        raise InputError("give --documents PATH… or --tasks NAME…, one of them")
    if arguments.documents:
        of_tasks = ("--tasks-data", "--limit", "--num-fewshot", "--label")
        refuse_given(arguments, of_tasks, "is for --tasks; leave it out")
    else:
        of_documents = (
            "--length",
            "--skip",
            "--instances",
            "--document-mask",
            "--domain-field",
            "--text-field",
            "--on-error",
        )
        refuse_given(arguments, of_documents, "is for --documents; leave it out")
    check_models(*arguments.runs)
    results = _run_tasks(arguments) if arguments.tasks else _perplexities(arguments)
    written = results if len(results) > 1 else results[0]
    if arguments.out:
        from loriini.atomic import write_json

        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.out, written)
    print(json.dumps(written, indent=1))
    print(_tasks_table(results) if arguments.tasks else _perplexity_table(results), file=sys.stderr)
    for line in () if arguments.tasks else _differences(results):
        print(line, file=sys.stderr)


def _run_tasks(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from loriini.evaluate.tasks import TaskSettings, evaluate_tasks

    settings = TaskSettings(
        tasks=tuple(arguments.tasks),
        data=arguments.tasks_data,
        limit=arguments.limit,
        num_fewshot=arguments.num_fewshot,
        routing=arguments.routing or "prompt",
        label=arguments.label,
        device=arguments.device,
        router_free=_router_free(arguments),
    )
    return evaluate_tasks(arguments.runs, settings)


def _tasks_table(results: Sequence[dict[str, Any]]) -> str:
    from loriini.cli.output import format_table
    from loriini.evaluate.tasks import table_of

    return format_table(*table_of(results), align_right=True)


def _perplexities(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from loriini.evaluate.runs import EvaluationSettings, evaluate_runs

    settings = EvaluationSettings(
        documents=tuple(arguments.documents),
        fields=document_fields(arguments),
        on_error=on_error(arguments),
        length=arguments.length,
        skip=arguments.skip,
        instances=arguments.instances,
        document_mask=arguments.document_mask,
        routing=arguments.routing or "training",
        device=arguments.device,
        router_free=_router_free(arguments),
    )
    return evaluate_runs(arguments.runs, settings)


def _perplexity_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Perplexity by domain: of one run with its bits per byte, of several beside each other."""
    from loriini.cli.output import format_table

    first, *others = results
    columns = {"perplexity": first["perplexity"], "bits per byte": first["bits_per_byte"]}
    if others:
        columns = {result["run"]: result["perplexity"] for result in results}
    rows = [
        [domain, f"{tokens:,}", *(f"{values[domain]:,.3f}" for values in columns.values())]
        for domain, tokens in first["tokens"].items()
    ]
    each = "document" if first.get("document_mask") else "instance"
    left_out = f", without the first {first['skip']} tokens of each {each}" if first["skip"] else ""
    table = format_table(("domain", "tokens", *columns), rows, align_right=True)
    return f"perplexity of held-out text{left_out}\n{table}"


def _differences(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The differences from the first run as lines of text."""
    from loriini.analyze.wording import interval, percent
    from loriini.evaluate.intervals import Difference

    if len(results) == 1:
        return
    yield (
        f"perplexity relative to {results[0]['run']}, with the 95 % interval over held-out documents "
        "(it does not cover the seed: another training of the same model differs, too)"
    )
    for result in results[1:]:
        for domain, values in result["difference"].items():
            difference = Difference.from_dict(values)
            name = f"{printable(result['run'])}  {printable(domain)}"
            yield f"  {name}: {percent(difference.change)} ({interval(difference)})"


def analyze_arguments(add: Add) -> None:
    """Arguments of `loriini analyze`."""
    add("model", type=Path, metavar="RUN", help=MODEL)
    add("--documents", nargs="+", required=True, metavar="PATH", help="held-out text")
    document_options(add)
    add("--per-document", action="store_true", help="route each document by itself, cut to the context")
    add("--device", metavar="NAME", help=DEVICE)
    add(
        "--out",
        type=output_path,
        metavar="DIR",
        help="folder of routes.npz, routes.json and report.html (RUN)",
    )


def analyze(arguments: argparse.Namespace) -> None:
    """Measure which experts each domain's text is routed to, and write a report."""
    check_models(arguments.model)
    from loriini.analyze.command import analyze_run

    report = analyze_run(
        arguments.model,
        arguments.documents,
        document_fields(arguments),
        arguments.out,
        per_document=arguments.per_document,
        device=arguments.device,
        on_error=on_error(arguments),
    )
    print(report)


def lens_arguments(add: Add) -> None:
    """Arguments of `loriini lens`."""
    add("model", type=Path, metavar="RUN", help=MODEL)
    add("--text", type=Path, metavar="FILE", help="the text, from a file")
    add("--prompt", type=text_argument, metavar="TEXT", help="the text itself")
    add("--dense", type=Path, metavar="RUN", help="a dense model, to show its loss beside the mixture's")
    add("--label", metavar="NAME", help="the text's domain, for a model that routes by label")
    add("--tokens", type=int, metavar="N", help="tokens of the text to read, at most (4096)")
    add("--device", metavar="NAME", help=DEVICE)
    add("--out", type=output_file, metavar="FILE", help="the page to write (RUN/lens.html)")


def lens(arguments: argparse.Namespace) -> None:
    """Write a page that shows the experts and the loss of each token of a text."""
    if (arguments.text is None) == (arguments.prompt is None):
        raise InputError("give --text FILE or --prompt TEXT, one of them")
    check_models(arguments.model, *([arguments.dense] if arguments.dense else []))
    from loriini.analyze.lens import LENS, MOST_TOKENS, write_lens
    from loriini.snapshot import folder_of

    out = arguments.out or folder_of(arguments.model, "--out FILE") / LENS
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


def generate_arguments(add: Add) -> None:
    """Arguments of `loriini generate`."""
    add("model", type=Path, metavar="RUN", help=MODEL)
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
    add("--device", metavar="NAME", help=DEVICE)


def generate(arguments: argparse.Namespace) -> None:
    """Continue a prompt, or each line of standard input."""
    if (arguments.prompt is None) != arguments.interactive:
        raise InputError("give --prompt TEXT or --interactive, one of them")
    check_models(arguments.model)
    from dataclasses import fields

    from loriini.evaluate.samples import Generation, check_generation, check_room, continue_text
    from loriini.hardware import autocast
    from loriini.model.labels import refuse_unused_label
    from loriini.model.loading import load_model, run_precision
    from loriini.progress import warn

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

    def say(prompt: str) -> None:
        room = check_room(model.config, tokenizer, text_argument(prompt), how)
        if "max_new_tokens" in settings and how.max_new_tokens > room:
            asked = f"--max-new-tokens {how.max_new_tokens}"
            warn(f"{asked}: the context has room for {room:,}; beyond it, models write worse")
        write(prompt)
        with autocast(run_precision(arguments.model), model.device):
            continue_text(model, tokenizer, prompt, how, write)
        write("\n")

    if arguments.interactive:
        _say_each_line(say)
    else:
        say(sys.stdin.read() if arguments.prompt == "-" else arguments.prompt)


def _say_each_line(say: Callable[[str], None]) -> None:
    """Call `say` with each line of standard input; Ctrl-C ends a call, or clears the line being typed."""
    from loriini.progress import warn

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
        try:
            say(line)
        except InputError as error:
            warn(error)
        except KeyboardInterrupt:
            print()
