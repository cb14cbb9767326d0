"""Commands that train, and that list and measure what can be trained."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from loriini.cli.parser import Add
from loriini.cli.table import show
from loriini.errors import InputError


def quickstart_arguments(add: Add) -> None:
    """What `quickstart` takes."""
    add("--out", type=Path, default=Path("loriini-quickstart"), help="folder of everything it makes")
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
    add("--out", type=Path)
    add("--corpus", type=Path, nargs="+", default=[])
    add("--resume", type=Path, metavar="RUN")


def train(arguments: argparse.Namespace) -> None:
    """Train a recipe, or go on with a run."""
    from loriini.launch import resume, train_recipe

    if arguments.resume:
        folder = resume(arguments.resume, arguments.overrides)
    elif not arguments.recipe or not arguments.out:
        raise InputError("give a recipe and --out RUN, or --resume RUN; see `loriini recipes`")
    else:
        folder = train_recipe(arguments.recipe, arguments.out, arguments.corpus, arguments.overrides)
    if os.environ.get("RANK", "0") == "0":  # torchrun's first process speaks for all
        print(folder)


def bench_arguments(add: Add) -> None:
    """What `bench` takes."""
    add("--out", type=Path, help="the JSON to write")
    add("--quick", action="store_true", help="smaller models and fewer rounds")


def bench(arguments: argparse.Namespace) -> None:
    """Speed and memory beside named baselines, on this machine."""
    from loriini.bench import measure
    from loriini.data.artifact import write_json

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
