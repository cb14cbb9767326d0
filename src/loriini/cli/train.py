"""The command that trains a recipe, resumes a run, or estimates one."""

import argparse
import json
import math
import time
from pathlib import Path

from loriini.cli.output import print_once
from loriini.cli.overrides import RecipeHelp
from loriini.cli.parser import Add, extension_option, on_error_option, output_path, refuse_given
from loriini.common.errors import InputError


def train_arguments(add: Add) -> None:
    """Arguments of `loriini train`."""
    add("-h", "--help", action=RecipeHelp, help="show this help; after a recipe also list its overrides")
    source = "a recipe of `loriini recipes`, FILE.json or FILE.toml with a run's settings, or FILE.py:NAME"
    add("recipe", nargs="?", metavar="RECIPE", help=source)
    add("--out", type=output_path, metavar="RUN", help="the run's folder")
    add("--corpus", type=Path, nargs="+", default=[], metavar="DIR", help="corpora to train on")
    init = "start from the weights of a run, a checkpoint, a model's folder or a Hub id (ORG/NAME)"
    add("--init", metavar="MODEL", help=init)
    resumed = (
        "resume the run in this folder (--corpus and --heldout say where its text is now, if moved); with "
        "--out and --steps, go on from a checkpoint of it in a new run of so many steps"
    )
    add("--resume", type=Path, metavar="RUN", help=resumed)
    heldout = "documents to evaluate on while training, as for `loriini evaluate`"
    add("--heldout", nargs="+", default=[], metavar="PATH", help=heldout)
    on_error_option(add, " of --heldout")
    minutes = "save and stop after this time (none)"
    add("--max-minutes", type=float, metavar="MINUTES", help=minutes)
    estimate = "only estimate memory, computation and communication; --out and --corpus are ignored"
    add("--dry-run", action="store_true", help=estimate)
    add("--gpus", type=int, metavar="N", help="GPUs of the estimate (1)")
    add("--memory", metavar="SIZE", help="memory of each of these GPUs, such as 80GiB or 80GB")
    add("--vocab-size", type=int, metavar="N", help="vocabulary of the estimate (that of the recipe's paper)")
    add("--json", action="store_true", help="print the estimate as JSON")
    extension_option(add)


def train(arguments: argparse.Namespace) -> None:
    """Train a recipe or the run of a file, resume a run, or estimate a run's memory and cost."""
    minutes = math.inf if arguments.max_minutes is None else arguments.max_minutes
    if not minutes > 0:
        raise InputError(f"--max-minutes {minutes:g}: give more than 0")
    deadline = time.monotonic() + 60 * minutes  # from here, since reading text and models may take long
    _refuse_unused(arguments)
    if arguments.dry_run:
        _dry_run(arguments)
        return
    if arguments.resume is None and not (arguments.recipe and arguments.out):
        raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
    if arguments.out and (arguments.out / "manifest.json").exists():
        raise InputError(f"--out {arguments.out}: holds a corpus; choose another folder")
    from loriini.train.launch import resume, train_longer, train_recipe

    if arguments.resume and arguments.out:
        model = train_longer(
            arguments.resume,
            arguments.out,
            arguments.overrides,
            deadline=deadline,
            corpora=arguments.corpus,
            heldout=arguments.heldout,
        )
    elif arguments.resume:
        model = resume(
            arguments.resume,
            overrides=arguments.overrides,
            deadline=deadline,
            corpora=arguments.corpus,
            heldout=arguments.heldout,
        )
    else:
        model = train_recipe(
            arguments.recipe,
            arguments.out,
            arguments.corpus,
            arguments.overrides,
            heldout=arguments.heldout,
            deadline=deadline,
            init=arguments.init,
            on_error=arguments.on_error,
        )
    print_once(model)


def _refuse_unused(arguments: argparse.Namespace) -> None:
    of_an_estimate = ("--gpus", "--memory", "--vocab-size", "--json")
    if arguments.resume is not None:
        why = "--resume keeps the run as it is; leave this out"
        refuse_given(arguments, ("recipe", "--on-error", "--init"), why)
    if arguments.dry_run:
        why = "--dry-run trains nothing; leave this out"
        refuse_given(arguments, ("--on-error", "--max-minutes"), why)
    else:
        refuse_given(arguments, of_an_estimate, "is only for estimates; add --dry-run or leave it out")


def _dry_run(arguments: argparse.Namespace) -> None:
    from loriini.cli.estimate_table import estimate_text
    from loriini.estimate.memory import GpuCluster, parse_memory
    from loriini.train.launch import dry_run

    if not arguments.recipe:
        raise InputError("--dry-run needs a recipe; see `loriini recipes`")
    memory = None if arguments.memory is None else parse_memory(arguments.memory)
    cluster = GpuCluster(1 if arguments.gpus is None else arguments.gpus, memory)
    estimate = dry_run(
        arguments.recipe,
        arguments.overrides,
        cluster,
        vocab_size=arguments.vocab_size,
        init=arguments.init,
        heldout=arguments.heldout,
    )
    print(json.dumps(estimate.to_dict(), indent=1) if arguments.json else estimate_text(estimate))
