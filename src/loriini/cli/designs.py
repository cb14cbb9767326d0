"""The commands that list what can be trained: designs and recipes."""

from dataclasses import dataclass
from typing import Any

from loriini.cli.output import print_rows
from loriini.common.errors import InputError


@dataclass(frozen=True)
class Designs:
    """List the routing designs."""

    json: bool = False
    """Print JSON, with all settings."""

    def run(self) -> None:
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
        if not self.json:
            rows = [{**row, **_in_a_table(row)} for row in rows]
        columns = ("name", "unit", "scope", "scorer", "selection", "gates", "combination", "causality")
        print_rows(rows, columns, self.json)


def _in_a_table(design: dict[str, Any]) -> dict[str, str]:
    """Cells of the table: the selection with its parameter, and both causalities if they differ."""
    selection, training = design["selection"], design["training_causality"]
    parameter = {"top_k": "top_k", "top_p": "top_p", "expert_choice": "capacity_factor"}.get(selection)
    value = f" {design[parameter]:g}" if parameter else ""
    differs = f", in training {training}" if training != design["causality"] else ""
    return {"selection": f"{selection}{value}", "causality": f"{design['causality']}{differs}"}


@dataclass(frozen=True)
class Recipes:
    """List the recipes with their sizes, and their parameters at their default vocabularies."""

    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from loriini.common.progress import warn
        from loriini.recipes import describe, recipe_names

        rows = []
        for name in recipe_names():
            try:
                rows.append(describe(name))
            except (InputError, ValueError) as error:
                warn(error)
        if self.json:
            keys = ("name", "parameters_total", "parameters_active", "published_total", "published_active")
            rows = [{key: row[key] for key in keys} for row in rows]
        print_rows(rows, tuple(rows[0]), self.json)
