"""The command that reproduces the papers' figures and tables."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from loriini.cli.compare import COMMANDS, print_commands
from loriini.cli.output import print_rows
from loriini.cli.parser import Add, given, on_error_option, output_file, output_path, refuse_given
from loriini.common.errors import InputError

IN_OUT = Path("findings.md")
"""Default name of the page, in the folder --out."""


def reproduce_arguments(add: Add) -> None:
    """Arguments of `loriini reproduce`."""
    add("items", nargs="*", metavar="ITEM", help="figures and tables, as --list names them, or all")
    add("--out", type=output_path, metavar="DIR", help="folder for runs, results and reports")
    option = partial(add, default=argparse.SUPPRESS)  # ReproduceSettings has the defaults
    option("--scale", metavar="NAME", help="tiny, small or paper (tiny)")
    text = "documents, as for `loriini quickstart --documents` (text found on this machine)"
    option("--text", nargs="+", metavar="PATH", help=text)
    on_error_option(option, " of --text")
    option("--seeds", type=int, metavar="N", help="trainings of each run (3)")
    option("--jobs", type=int, metavar="N", help="trainings at once, which share the cores (1)")
    add("--list", action="store_true", help="list every item with its finding, cost and state")
    add("--commands", action="store_true", help=COMMANDS)
    reasons = "also train runs that test likely reasons why a finding does not hold"
    option("--reasons", action="store_true", help=reasons)
    page = "write the findings in --out as Markdown (OUT/findings.md), and pictures in a folder beside it"
    add("--page", nargs="?", const=IN_OUT, type=output_file("# Findings"), metavar="FILE", help=page)
    add("--json", action="store_true", help="with --list: as JSON")


def reproduce(arguments: argparse.Namespace) -> None:
    """Reproduce figures and tables of the four papers: train, measure, plot, and say which findings hold."""
    settings = given(arguments, ("scale", "text", "on_error", "seeds", "jobs", "reasons"))
    _refuse_unused(arguments)
    if arguments.list:
        _list(arguments, settings)
        return
    only_prints = getattr(arguments, "scale", "") == "paper" and "text" not in arguments
    if arguments.out is None and (arguments.page or not only_prints):
        raise InputError("--out is missing: give the folder of runs and results")
    if arguments.page:
        from loriini.papers.reproduce.findings import write_findings

        in_out = arguments.page is IN_OUT
        print(write_findings(arguments.out, arguments.out / IN_OUT if in_out else arguments.page))
        return
    if not arguments.items:
        raise InputError("give the items to reproduce, or all; `loriini reproduce --list` lists them")
    from loriini.papers.reproduce.job import ReproduceSettings, place_items, reproduce_items
    from loriini.papers.reproduce.plan import unique_trials

    wanted = ReproduceSettings(tuple(arguments.items), **settings)
    if only_prints:
        _print_paper_commands(wanted.items, wanted.seeds)
        return
    if arguments.commands:
        print_commands(unique_trials(place_items(wanted, arguments.out)[0]))
        return
    print(reproduce_items(wanted, arguments.out))


def _refuse_unused(arguments: argparse.Namespace) -> None:
    """InputError for arguments that would have no effect."""
    of_a_training = ("items", "--text", "--on-error", "--jobs", "--reasons", "--commands")
    for unused, names, why in (
        (arguments.list, (*of_a_training, "--page"), "--list trains nothing"),
        (
            arguments.page is not None,
            (*of_a_training, "--scale", "--seeds"),
            "--page is made from the results in --out alone",
        ),
        (
            getattr(arguments, "scale", "") == "paper" and "text" not in arguments,
            ("--reasons", "--commands"),
            "--scale paper only prints commands unless there is a --text",
        ),
        (arguments.commands, ("--reasons",), "findings are judged only after the trainings of --commands"),
        (not arguments.list, ("--json",), "is only for --list"),
        ("text" not in arguments, ("--on-error",), "is only for --text"),
    ):
        if unused:
            refuse_given(arguments, names, f"{why}; leave this out")


def _list(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    from loriini.papers.reproduce.experiments.catalog import ALL
    from loriini.papers.reproduce.job import ReproduceSettings
    from loriini.papers.reproduce.listing import describe_items, describe_reasons
    from loriini.papers.reproduce.scales import find_scale

    wanted = ReproduceSettings((ALL,), **settings)
    scale, columns = find_scale(wanted.scale), ("item", "trainings", "cost", "state", "finding")
    print_rows(describe_items(scale, wanted.seeds, arguments.out), columns, as_json=arguments.json)
    if scale.shapes and not arguments.json:
        print(f"\n{describe_reasons(scale, wanted.seeds)}")


def _print_paper_commands(items: tuple[str, ...], seeds: int) -> None:
    from loriini.papers.reproduce.experiments.catalog import find_experiments
    from loriini.papers.reproduce.listing import paper_commands

    for experiment in find_experiments(items):
        item = experiment.item
        computed = f"# It trains nothing: loriini reproduce {item} --out DIR"
        commands = list(paper_commands(experiment, seeds)) or [computed]
        print(f"# {item}: {experiment.published.title}", *commands, sep="\n")
