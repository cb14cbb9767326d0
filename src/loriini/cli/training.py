"""Commands that train, and that list and measure what can be trained."""

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

from loriini.cli.output import print_once, print_rows
from loriini.cli.overrides import RecipeHelp
from loriini.cli.parser import (
    Add,
    check_models,
    given,
    on_error_option,
    output_file,
    output_path,
    refuse_given,
)
from loriini.errors import InputError


def quickstart_arguments(add: Add) -> None:
    """Arguments of `loriini quickstart`."""
    out = "output folder (%(default)s)"
    add("--out", type=output_path, default=Path("loriini-quickstart"), help=out)
    option = partial(add, default=argparse.SUPPRESS)  # Quickstart has the defaults
    documents = "your own documents, as for `loriini prepare` (text found on this machine)"
    option("--documents", nargs="+", metavar="PATH", help=documents)
    option("--design", metavar="NAME", help="the mixture to train beside the dense model (lory)")
    option("--size", metavar="NAME", help="size of both models: small, medium or large (small)")
    option("--steps", type=int, metavar="N", help="training steps of each model (those of the size)")
    option("--seed", type=int, help="seed of every random choice (0)")
    on_error_option(option)


def quickstart(arguments: argparse.Namespace) -> None:
    """Train a dense model and a mixture on the same text and compare them."""
    from dataclasses import fields

    from loriini.quickstart import Quickstart, run_quickstart

    settings = given(arguments, [field.name for field in fields(Quickstart)])
    run_quickstart(Quickstart(**settings), arguments.out)


def designs_arguments(add: Add) -> None:
    """Arguments of `loriini designs`."""
    add("--json", action="store_true", help="print JSON, with all settings")
    audit = "instead measure whether a trained model's logits depend on later tokens"
    add("--audit", type=Path, metavar="RUN", help=audit)


def designs(arguments: argparse.Namespace) -> None:
    """List the routing designs, or measure whether a trained model's logits depend on later tokens."""
    if arguments.audit:
        _audit(arguments.audit, arguments.json)
        return
    from loriini.routing import DESIGNS

    rows = [
        {
            "name": name,
            **design.to_dict(),
            "causality": design.causality,
            "training_causality": design.training_causality,
        }
        for name, design in DESIGNS.items()
    ]
    if not arguments.json:
        rows = [{**row, **_in_a_table(row)} for row in rows]
    columns = ("name", "unit", "scope", "scorer", "selection", "gates", "combination", "causality")
    print_rows(rows, columns, arguments.json)


def _in_a_table(design: dict[str, Any]) -> dict[str, str]:
    """The selection with its parameter, and both causalities where they differ."""
    selection, training = design["selection"], design["training_causality"]
    parameter = {"top_k": "top_k", "top_p": "top_p", "expert_choice": "capacity_factor"}.get(selection)
    value = f" {design[parameter]:g}" if parameter else ""
    differs = f", in training {training}" if training != design["causality"] else ""
    return {"selection": f"{selection}{value}", "causality": f"{design['causality']}{differs}"}


def recipes_arguments(add: Add) -> None:
    """Arguments of `loriini recipes`."""
    add("--json", action="store_true", help="print JSON")


def recipes(arguments: argparse.Namespace) -> None:
    """List the recipes with their sizes, and parameters at their papers' vocabularies."""
    from loriini.progress import warn
    from loriini.recipes import RECIPES, describe, installed_recipes, shape_of

    def row(name: str) -> dict[str, Any]:
        described = describe(name)
        return described if arguments.json else {"name": name, **shape_of(name), **described}

    rows = [row(name) for name in RECIPES]
    for name in installed_recipes():
        try:
            rows.append(row(name))
        except (InputError, ValueError) as error:
            warn(error)
    print_rows(rows, tuple(rows[0]), arguments.json)


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


def train(arguments: argparse.Namespace) -> None:
    """Train a recipe or the run of a file, resume a run, or estimate a run's memory and cost."""
    minutes = math.inf if arguments.max_minutes is None else arguments.max_minutes
    if not minutes > 0:
        raise InputError(f"--max-minutes {minutes:g}: give more than 0")
    _refuse_unused(arguments)
    if arguments.dry_run:
        _dry_run(arguments)
        return
    if arguments.resume is None and not (arguments.recipe and arguments.out):
        raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
    if arguments.out and (arguments.out / "manifest.json").exists():
        raise InputError(f"--out {arguments.out}: holds a corpus; choose another folder")
    from loriini.launch import resume, train_longer, train_recipe

    if arguments.resume and arguments.out:
        model = train_longer(
            arguments.resume,
            arguments.out,
            arguments.overrides,
            minutes=minutes,
            corpora=arguments.corpus,
            heldout=arguments.heldout,
        )
    elif arguments.resume:
        model = resume(
            arguments.resume,
            overrides=arguments.overrides,
            minutes=minutes,
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
            minutes=minutes,
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
    from loriini.cli.estimate import estimate_text
    from loriini.estimate.memory import GpuCluster, parse_memory
    from loriini.launch import dry_run

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


def bench_arguments(add: Add) -> None:
    """Arguments of `loriini bench`."""
    add("--out", type=output_file, metavar="FILE", help="also write the results to this file, as JSON")
    add("--quick", action="store_true", help="smaller models and fewer rounds")
    only = "this part alone; --out keeps the rows of other parts (default: all but sweep and recompute)"
    parts = ("train", "recompute", "sweep", "sparse", "aoe", "ffn", "decode", "memory")
    add("--only", choices=parts, help=only)
    add("--rounds", type=int, metavar="N", help="how often each case is measured (8)")


def bench(arguments: argparse.Namespace) -> None:
    """Measure speed and memory on this machine relative to named baselines."""
    from loriini.atomic import write_json
    from loriini.bench import COLUMNS, measure, rows_of_other_parts

    out, only, rounds = arguments.out, arguments.only, arguments.rounds
    if rounds is not None and rounds < 1:
        raise InputError(f"--rounds {rounds}: give at least 1")
    kept = rows_of_other_parts(out, only) if out and only else []
    for rows in measure(arguments.quick, [only] if only else [], rounds):
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, [*kept, *rows])
    digits = {"ratio": 3, "bound": 3, "published": 3, "mfu": 3, "median_s": 4}
    texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row.get(k) is not None} for row in rows]
    shown = [{**dict.fromkeys(COLUMNS), **row, **text} for row, text in zip(rows, texts, strict=True)]
    print_rows(shown, COLUMNS, as_json=False)


def _audit(path: Path, as_json: bool) -> None:
    """Print whether the logits of a trained model depend on later tokens."""
    check_models(path)
    from dataclasses import asdict

    from loriini.evaluate.audit import audit, random_instances
    from loriini.model.loading import load_model

    model = load_model(path)[0].float()
    leak = audit(model, random_instances(model))
    print(json.dumps(asdict(leak), indent=1) if as_json else leak)
