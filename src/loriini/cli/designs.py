"""The commands that list what can be trained: designs and recipes."""

import argparse
import json
from pathlib import Path
from typing import Any

from loriini.cli.output import print_rows
from loriini.cli.parser import Add, check_models, extension_option
from loriini.common.errors import InputError


def designs_arguments(add: Add) -> None:
    """Arguments of `loriini designs`."""
    add("--json", action="store_true", help="print JSON, with all settings")
    audit = "instead measure whether a trained model's logits depend on later tokens"
    add("--audit", type=Path, metavar="MODEL", help=audit)
    extension_option(add)


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


def _audit(path: Path, as_json: bool) -> None:
    """Print whether the logits of a trained model depend on later tokens."""
    check_models(path)
    from dataclasses import asdict

    from loriini.evaluate.audit import audit, random_instances
    from loriini.model.weights.loading import load_model

    model = load_model(path)[0].float()
    leak = audit(model, random_instances(model))
    print(json.dumps(asdict(leak), indent=1) if as_json else leak)


def recipes_arguments(add: Add) -> None:
    """Arguments of `loriini recipes`."""
    add("--json", action="store_true", help="print JSON")


def recipes(arguments: argparse.Namespace) -> None:
    """List the recipes with their sizes, and parameters at their papers' vocabularies."""
    from loriini.common.progress import warn
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
