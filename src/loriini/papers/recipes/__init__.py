"""The papers' models as recipes, with the parameters that the papers print for them.

Each is a table in a TOML file here, with the fields of a run's file; `recipe` names the one that it changes.
"""

import tomllib
from dataclasses import replace
from pathlib import Path

from loriini.papers.published import PARAMETERS
from loriini.recipes import Recipe
from loriini.recipes.files import run_of_values
from loriini.train.config import TrainConfig


def read_recipes() -> dict[str, Recipe]:
    """The recipes of all files, by name."""
    runs: dict[str, TrainConfig] = {}
    for file in ("lory", "design_choices", "aoe"):
        text = Path(__file__).with_name(f"{file}.toml").read_text("utf-8")
        for name, values in tomllib.loads(text).items():
            runs[name] = replace(run_of_values(values, runs.__getitem__, name), name=name)
    return {
        name: Recipe(run, sizes.get("total"), sizes.get("active"))
        for name, run in runs.items()
        for sizes in [PARAMETERS.get(name, {})]
    }


RECIPES = read_recipes()
