"""Commands that train, and that list and measure what can be trained."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

from loriini.cli.parser import Add, output
from loriini.cli.table import show
from loriini.cli.tell import tell
from loriini.errors import InputError


def quickstart_arguments(add: Add) -> None:
    """What `quickstart` takes."""
    add("--out", type=output, default=Path("loriini-quickstart"), help="folder of everything it makes")
    add("--documents", nargs="+", help="your own text instead of what is on this machine")
    add("--design", help="the mixture to train beside the dense model (lory)")
    add("--size", help="small, medium or large (small)")
    add("--steps", type=int, help="training steps of each model")
    add("--seed", type=int)


def quickstart(arguments: argparse.Namespace) -> None:
    """Run the main job."""
    from loriini.quickstart import Quickstart, run_quickstart

    names = ("documents", "design", "size", "steps", "seed")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    run_quickstart(Quickstart(**given), arguments.out)


def designs_arguments(add: Add) -> None:
    """What `designs` takes."""
    add("--json", action="store_true")
    add("--audit", type=Path, metavar="RUN", help="how far a trained model looks into the future")


def designs(arguments: argparse.Namespace) -> None:
    """List the designs, or measure how far a trained model looks into the future."""
    from loriini.routing import DESIGNS

    if arguments.audit:
        _audit(arguments.audit, arguments.json)
        return
    rows = [
        {
            "name": name,
            **design.to_dict(),
            "causality": design.causality,
            "training_causality": design.training_causality,
        }
        for name, design in DESIGNS.items()
    ]
    columns = ("name", "unit", "scope", "scorer", "selection", "gates", "combination", "causality")
    show(rows, columns, arguments.json)


def recipes_arguments(add: Add) -> None:
    """What `recipes` takes."""
    add("--json", action="store_true")


def recipes(arguments: argparse.Namespace) -> None:
    """List the recipes."""
    from loriini.recipes import RECIPES, describe

    rows = [describe(name) for name in RECIPES]
    show(rows, tuple(rows[0]), arguments.json)


def train_arguments(add: Add) -> None:
    """What `train` takes."""
    add("recipe", nargs="?")
    add("--out", type=output)
    add("--corpus", type=Path, nargs="+", default=[])
    add("--resume", type=Path, metavar="RUN")
    add("--heldout", type=Path, nargs="+", default=[], help="documents to evaluate on while training")
    add("--max-minutes", type=float, default=math.inf, help="save and stop after so long")
    add("--dry-run", action="store_true", help="only estimate what the run needs")
    add("--gpus", type=int, help="of the estimate (1)")
    add("--memory", metavar="GiB", help="of each of these GPUs, as 80GiB")
    add("--vocab-size", type=int, help="of the estimate (that of the recipe's paper)")
    add("--json", action="store_true", help="the estimate as JSON")


def train(arguments: argparse.Namespace) -> None:
    """Train a recipe, or go on with a run, or estimate what a run needs."""
    from loriini.launch import resume, train_recipe

    if arguments.max_minutes <= 0:
        raise InputError(f"--max-minutes {arguments.max_minutes:g}: give more than 0")
    _refuse_ignored(arguments)
    if arguments.dry_run:
        _dry_run(arguments)
    elif arguments.resume:
        tell(resume(arguments.resume, arguments.overrides, arguments.max_minutes))
    elif not arguments.recipe or not arguments.out:
        raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
    else:
        made = (arguments.recipe, arguments.out, arguments.corpus, arguments.overrides)
        tell(train_recipe(*made, arguments.heldout, arguments.max_minutes))


def _refuse_ignored(arguments: argparse.Namespace) -> None:
    """InputError for what was given but would be ignored."""
    of_a_new_run, of_an_estimate = (
        ("recipe", "out", "corpus", "heldout"),
        ("gpus", "memory", "vocab_size", "json"),
    )
    for ignored, names, remedy in (
        (arguments.resume is not None, of_a_new_run, "--resume goes on with the run as it is; leave it out"),
        (not arguments.dry_run, of_an_estimate, "is of an estimate; add --dry-run or leave it out"),
    ):
        for name in names if ignored else ():
            value = getattr(arguments, name)
            if value not in (None, []) and value is not False:
                said = str(value) if name == "recipe" else f"--{name.replace('_', '-')}"
                raise InputError(f"{said}: {remedy}")


def _dry_run(arguments: argparse.Namespace) -> None:
    """Print the estimate of a recipe."""
    from loriini.cli.estimate import estimate_text
    from loriini.estimate.estimate import Cluster, parse_memory
    from loriini.launch import dry_run

    if not arguments.recipe:
        raise InputError("--dry-run needs a recipe; see `loriini recipes`")
    memory = None if arguments.memory is None else parse_memory(arguments.memory)
    cluster = Cluster(1 if arguments.gpus is None else arguments.gpus, memory)
    found = dry_run(arguments.recipe, arguments.overrides, cluster, arguments.vocab_size)
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else estimate_text(found))


def bench_arguments(add: Add) -> None:
    """What `bench` takes."""
    add("--out", type=output, help="the JSON to write")
    add("--quick", action="store_true", help="smaller models and fewer rounds")


def bench(arguments: argparse.Namespace) -> None:
    """Speed and memory beside named baselines, on this machine."""
    from loriini.atomic import write_json
    from loriini.bench import measure

    out = arguments.out
    if out and out.is_dir():
        raise InputError(f"--out {out}: is a folder; give the name of a file")
    rows = measure(arguments.quick)
    digits = {"ratio": 3, "median_s": 4}
    texts = [{k: f"{row[k]:.{n}f}" for k, n in digits.items() if row[k] is not None} for row in rows]
    show([{**row, **text} for row, text in zip(rows, texts, strict=True)], tuple(rows[0]), as_json=False)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, rows)


def _audit(path: Path, as_json: bool) -> None:
    """Print a trained model's leak."""
    from loriini.evaluate.audit import audit, random_instances
    from loriini.model.loading import load_model

    model = load_model(path)[0].float()
    leak = audit(model, random_instances(model))
    print(json.dumps(asdict(leak), indent=1) if as_json else leak)
