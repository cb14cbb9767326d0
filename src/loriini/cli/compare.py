"""The command that compares designs, or existing runs."""

import argparse
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loriini.cli.output import format_table, print_rows
from loriini.cli.parser import (
    SKIP,
    Add,
    document_options,
    evaluation_settings,
    extension_option,
    given,
    mask_option,
    output_path,
    refuse_given,
)
from loriini.common.errors import InputError
from loriini.common.json_file import read_object

if TYPE_CHECKING:
    from loriini.compare.job import CompareSettings
    from loriini.compare.running import Trial


OF_A_TRAINING = (
    *("--corpus", "--recipe", "--seeds", "--grid", "--jobs", "--ladder"),
    *("--dry-run", "--commands"),
)
COMMANDS = "train nothing here: print a command for each training that is not done, to run anywhere"


def compare_arguments(add: Add) -> None:
    """Arguments of `loriini compare`."""
    names = (
        "designs to train (see `loriini designs`), or run folders; the others are compared with the first "
        "causal one"
    )
    add("names", nargs="+", metavar="DESIGN|RUN", help=names)
    add("--out", type=output_path, required=True, metavar="DIR", help="folder for runs and report")
    heldout = "held-out documents that every model is scored on"
    add("--heldout", nargs="+", default=[], metavar="PATH", help=heldout)
    training = partial(add, default=argparse.SUPPRESS)  # CompareSettings has the defaults
    training("--corpus", type=Path, nargs="+", metavar="DIR", help="corpora to train on")
    recipe = "base run, whose routing each design replaces: tiny, small, medium, large, or a recipe (tiny)"
    training("--recipe", metavar="NAME", help=recipe)
    training("--seeds", type=int, metavar="N", help="trainings of each design, with consecutive seeds (3)")
    grid = "compare these values of a setting; several grids are combined"
    training("--grid", action="append", metavar="FIELD=V,V", help=grid)
    ladder = "train each design at these widths, and show loss over compute"
    training("--ladder", metavar="W,W", help=ladder)
    training("--jobs", type=int, metavar="N", help="trainings at once, which share the cores (1)")
    add("--dry-run", action="store_true", help="only list the trainings, their cost and what is done")
    add("--commands", action="store_true", help=COMMANDS)
    add("--skip", type=int, metavar="N", help=SKIP)
    add("--instances", type=int, metavar="N", help="held-out instances of each domain, at most (all)")
    mask_option(add)
    document_options(add)
    extension_option(add)


def compare(arguments: argparse.Namespace) -> None:
    """Train designs on the same text with several seeds and compare them, or compare existing runs.

    Any other --dotted.name VALUE changes this setting of every training, as --steps 2000 or
    --optimizer.learning_rate 1e-3; `loriini train RECIPE --help` lists them.
    """
    from loriini.compare.job import compare_designs, compare_runs, describe_cells, place_designs

    evaluation = evaluation_settings(arguments, arguments.heldout)
    if runs := _runs(arguments.names):
        _check_runs(arguments, runs)
        _print_summary(compare_runs(runs, evaluation if arguments.heldout else None, arguments.out))
        return
    settings = _settings(arguments)
    if arguments.dry_run and arguments.commands:
        raise InputError("--commands: --dry-run makes no folders to train in; leave one of them out")
    if arguments.dry_run:
        rows = describe_cells(settings, arguments.out)
        print_rows(rows, tuple(rows[0]), as_json=False)
        return
    if not arguments.heldout:
        raise InputError("--heldout is missing: give the documents that the models are scored on")
    if arguments.commands:
        print_commands(place_designs(settings, evaluation, arguments.out)[0])
        return
    _print_summary(compare_designs(settings, evaluation, arguments.out))


def _print_summary(report: Path) -> None:
    """Print what a comparison found, and as the last line the path of its report."""
    from loriini.common.progress import inform
    from loriini.compare.job import RESULTS
    from loriini.compare.report import COLUMNS, headline_and_rows, not_in_rows

    results = read_object(report.with_name(RESULTS), "run the command again")
    found, rows = headline_and_rows(results)
    for remark in results["remarks"]:
        inform(f"note: {remark}")
    table = [format_table(COLUMNS, rows)] if rows else []
    print(found, *table, *filter(None, [not_in_rows(results)]), report, sep="\n")


def _runs(names: Iterable[str]) -> list[Path]:
    """The folders among the names. InputError for a name that is both a design's and a run's folder."""
    from loriini.common.hub import RUN
    from loriini.routing import DESIGNS

    for name in names:
        if name in DESIGNS and (Path(name) / RUN).exists():
            raise InputError(f"{name}: a design, and a run's folder here; write ./{name} for the run")
    return [Path(name) for name in names if name not in DESIGNS and Path(name).is_dir()]


def _settings(arguments: argparse.Namespace) -> "CompareSettings":
    """The settings of trainings. InputError for an unknown design or a wrong grid or ladder."""
    from loriini.compare.cells import check_design, parse_grid
    from loriini.compare.job import CompareSettings
    from loriini.compare.sizes import parse_widths

    training = given(arguments, ("corpus", "recipe", "seeds", "grid", "ladder", "jobs"))
    for name in arguments.names:
        check_design(name)
    if "grid" in training:
        training["grid"] = parse_grid(training["grid"])
    if "ladder" in training:
        training["ladder"] = parse_widths(training["ladder"])
    return CompareSettings(tuple(arguments.names), overrides=tuple(arguments.overrides), **training)


def print_commands(trials: Iterable["Trial"]) -> None:
    """Print the command of each training that is not done."""
    from loriini.compare.running import training_commands

    print(*(f"{command}\n" for command in training_commands(trials)), sep="", end="")


def _check_runs(arguments: argparse.Namespace, runs: list[Path]) -> None:
    """InputError for designs among runs, for options of trainings, and for those of --heldout without it."""
    others = [name for name in arguments.names if Path(name) not in runs]
    if others:
        raise InputError(f"{others[0]}: give designs or folders of runs, not both")
    trained = "these runs are trained already; leave it out"
    refuse_given(arguments, OF_A_TRAINING, trained)
    for override in arguments.overrides:
        raise InputError(f"{override.partition('=')[0]}: {trained}")
    if not arguments.heldout:
        of_heldout = ("--skip", "--instances", "--mask-documents", "--on-error")
        refuse_given(
            arguments,
            (*of_heldout, "--text-field", "--domain-field"),
            "is for --heldout; give that too, or leave this out",
        )
