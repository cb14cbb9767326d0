"""Named runs. A recipe is a whole `TrainConfig`; a variant changes a few fields of another recipe."""

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.common.hub import RUN
from loriini.papers.published import PARAMETERS
from loriini.recipes.aoe import aoe_recipes
from loriini.recipes.design_choices import design_choices_recipes
from loriini.recipes.files import READERS, as_run, python_recipe, read_run_file, read_values
from loriini.recipes.lory import lory_recipes
from loriini.recipes.redesign import with_design, with_routing
from loriini.recipes.small import SIZES, Size, families, quickstart_run, tiny_recipes
from loriini.train.config import TrainConfig
from loriini.train.corpora import SMALL_VOCABULARY

VOCABULARY = {"llama": 32_000, "gpt2": 50_257}
"""The papers' vocabularies, Llama's and GPT-2's, by the block that they train with."""

TINY = {run.name: run for run in tiny_recipes()}
"""Recipes that need no corpus: they prepare a small one."""
RECIPES = TINY | {run.name: run for run in (*lory_recipes(), *design_choices_recipes(), *aoe_recipes())}
GROUP = "loriini.recipes"
"""Entry points of other packages: each a `TrainConfig` or a function that returns one."""


def installed_recipes() -> dict[str, EntryPoint]:
    """The recipes of other installed packages, by name; none is imported yet."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in RECIPES}


def find_recipe(name: str) -> TrainConfig:
    """The run of a recipe's name, of `FILE.json` or `FILE.toml`, or of `FILE.py:NAME`.

    InputError for an unknown name and for a file that cannot be read.
    """
    path, _, attribute = name.rpartition(":")
    if path.endswith(".py"):
        return python_recipe(Path(path), attribute)
    if name.endswith(".py"):
        raise InputError(f"{name}: name one of its runs, as {name}:NAME")
    if Path(name).suffix in READERS:
        return read_run_file(Path(name), named_recipe)
    return named_recipe(name)


def named_recipe(name: str) -> TrainConfig:
    """The recipe of this name, ours or another package's. InputError for an unknown one."""
    if name in RECIPES:
        return RECIPES[name]
    installed = installed_recipes()
    if name in installed:
        entry = installed[name]
        try:
            value = entry.load()
        except Exception as error:
            raise InputError(f"recipe {name}: {entry.value} cannot be imported ({error})") from error
        return as_run(value, f"recipe {name}")
    if Path(name, RUN).exists():
        raise InputError(f"{name}: a run's folder; give {Path(name, RUN)}, or --resume {name}")
    if Path(name).is_file():
        raise InputError(f"{name}: not a file of settings; give FILE.toml, FILE.json or FILE.py:NAME")
    hint = nearest(str(name), [*RECIPES, *installed])
    raise InputError(f"no recipe is named {name!r}; {hint}`loriini recipes` lists them all")


def is_tiny(name: str) -> bool:
    """Whether a recipe, or the one that a file of values changes, is in TINY."""
    path = Path(name)
    return (str(read_values(path).get("recipe")) if path.suffix in READERS else name) in TINY


def describe(name: str) -> dict[str, Any]:
    """A recipe's name and parameters with its default vocabulary, and the published ones as printed."""
    run, published = named_recipe(name), PARAMETERS.get(name, {})
    total, active = run.config(default_vocabulary(run, name)).parameters()
    return {
        "name": name,
        "parameters_total": total,
        "parameters_active": active,
        "published_total": published.get("total"),
        "published_active": published.get("active"),
    }


def shape_of(name: str) -> dict[str, int]:
    """A recipe's sizes, with its default vocabulary."""
    run = named_recipe(name)
    return {
        "experts": run.model.num_experts,
        "width": run.model.hidden_size,
        "layers": run.model.num_hidden_layers,
        "context": run.length,
        "vocabulary": default_vocabulary(run, name),
    }


def default_vocabulary(run: TrainConfig, recipe: str = "") -> int:
    """A run's vocabulary where there is no corpus yet: that of the paper that trained with its block.

    It is the small corpus's where the run's `recipe` trains on that.
    """
    if is_tiny(recipe):
        return SMALL_VOCABULARY
    return VOCABULARY.get(run.model.block, VOCABULARY["llama"])


__all__ = [
    "RECIPES",
    "SIZES",
    "VOCABULARY",
    "Size",
    "default_vocabulary",
    "describe",
    "families",
    "find_recipe",
    "installed_recipes",
    "is_tiny",
    "quickstart_run",
    "shape_of",
    "with_design",
    "with_routing",
]
