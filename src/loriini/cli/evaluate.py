"""The command that measures perplexity, or runs downstream tasks."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from loriini.cli.output import format_table
from loriini.cli.parser import (
    SKIP,
    Add,
    check_models,
    device_option,
    document_options,
    evaluation_settings,
    extension_option,
    given,
    mask_option,
    output_file,
    refuse_given,
)
from loriini.common.errors import InputError, printable

if TYPE_CHECKING:
    from loriini.evaluate.runs import RouterFree

RUNS = "runs' folders, model folders or Hub ids; several are compared on the same tokens"
BATCH = "instances, or questions of tasks, computed at once (16, fewer where their logits are many)"
TASKS = "tasks of lm-evaluation-harness, NAME or NAME@SHOTS, or the groups lory, aoe and router-free"


def evaluate_arguments(add: Add) -> None:
    """Arguments of `loriini evaluate`."""
    add("runs", type=Path, nargs="+", metavar="RUN", help=RUNS)
    add("--documents", nargs="+", metavar="PATH", help="held-out text")
    document_options(add)
    add("--tasks", nargs="+", metavar="NAME", help=TASKS)
    add("--tasks-data", type=Path, metavar="DIR", help="local files of the tasks, in place of the Hub's data")
    add("--limit", type=int, metavar="N", help="questions of each task, at most (all)")
    add(
        "--num-fewshot",
        type=int,
        metavar="K",
        help="examples before each question (as the task or group says)",
    )
    add("--label", metavar="NAME", help="domain whose expert answers, for a model that routes by label")
    add(
        "--length",
        type=int,
        metavar="TOKENS",
        help="context of an instance in tokens (the smallest of the models)",
    )
    add("--batch-size", type=int, metavar="N", default=argparse.SUPPRESS, help=BATCH)
    add("--skip", type=int, metavar="N", help=SKIP)
    add("--instances", type=int, metavar="N", help="instances of each domain, at most (all)")
    mask_option(add)
    add(
        "--routing",
        choices=("training", "prompt", "segment"),
        help="how tokens are routed (training for --documents, prompt for --tasks)",
    )
    router_free = (
        "replace the routers: select experts by the norm (1, 2 or inf) of their activations at NODE: gate, "
        "up, activated_gate, hidden, output, or of factorised experts low_rank; NORM is 2 and GATES "
        "softmax_selected by default"
    )
    add("--router-free", metavar="NODE[:NORM[:GATES]]", help=router_free)
    device_option(add)
    out = output_file('"perplexity"', '"tasks"')
    add("--out", type=out, metavar="FILE", help="also write the JSON to this file")
    extension_option(add)


def _router_free(arguments: argparse.Namespace) -> "RouterFree | None":
    """The value of --router-free; None without it."""
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
            "--mask-documents",
            "--domain-field",
            "--text-field",
            "--on-error",
        )
        refuse_given(arguments, of_documents, "is for --documents; leave it out")
    check_models(*arguments.runs)
    results = _run_tasks(arguments) if arguments.tasks else _perplexities(arguments)
    written = results if len(results) > 1 else results[0]
    print(json.dumps(written, indent=1), flush=True)  # first, as the file may not be written
    print(_tasks_table(results) if arguments.tasks else _perplexity_table(results), file=sys.stderr)
    for line in () if arguments.tasks else _differences(results):
        print(line, file=sys.stderr)
    if arguments.out:
        from loriini.common.atomic import write_json

        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.out, written)


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
        **given(arguments, ("batch_size",)),
    )
    return evaluate_tasks(arguments.runs, settings)


def _tasks_table(results: Sequence[dict[str, Any]]) -> str:
    from loriini.evaluate.tasks import table_of

    return format_table(*table_of(results), align_right=True)


def _perplexities(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from loriini.evaluate.runs import evaluate_runs

    settings = evaluation_settings(
        arguments,
        arguments.documents,
        length=arguments.length,
        **given(arguments, ("batch_size",)),
        routing=arguments.routing or "training",
        device=arguments.device,
        router_free=_router_free(arguments),
    )
    return evaluate_runs(arguments.runs, settings)


def _perplexity_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Perplexity by domain, and its mean: of one run with its bits per byte, of several side by side.

    Bits per byte are over the counted tokens, or over all tokens if their bytes are not known.
    """
    first, *others = results
    counted = first.get("bits_per_byte_counted")
    which, bits = ("counted", counted) if counted else ("all", first["bits_per_byte"])
    columns = {"perplexity": first["perplexity"], f"bits per byte ({which})": bits}
    if others:
        columns = {result["run"]: result["perplexity"] for result in results}
    measured = {domain: [values[domain] for values in columns.values()] for domain in first["tokens"]}
    rows = [[domain, tokens, *measured[domain]] for domain, tokens in first["tokens"].items()]
    if len(rows) > 1:
        by_column = zip(*measured.values(), strict=True)
        means = [None if None in values else fmean(values) for values in by_column]
        rows.append(["mean", sum(first["tokens"].values()), *means])
    shown = [
        [domain, f"{tokens:,}", *("–" if value is None else f"{value:,.3f}" for value in values)]
        for domain, tokens, *values in rows
    ]
    each = "document" if first.get("document_mask") else "instance"
    left_out = f", without the first {first['skip']} tokens of each {each}" if first["skip"] else ""
    table = format_table(("domain", "tokens", *columns), shown, align_right=True)
    return f"perplexity of held-out text{left_out}\n{table}"


def _differences(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The differences from the first run as lines of text."""
    from loriini.evaluate.intervals import Difference
    from loriini.reporting.wording import interval, percent

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
