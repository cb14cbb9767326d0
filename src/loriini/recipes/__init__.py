"""Recipes: complete runs (`TrainConfig`) by name, ours and those of installed packages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from loriini.common.checks import nearest
from loriini.common.errors import InputError
from loriini.common.folders import RUN
from loriini.common.progress import warn
from loriini.recipes.files import READERS, as_run, read_run_file, read_values
from loriini.recipes.small import SIZES, quickstart_run, tiny_recipes
from loriini.train.config import TrainConfig
from loriini.train.corpora import SMALL_VOCABULARY

VOCABULARY = {"llama": 32_000, "gpt2": 50_257}
"""Sizes of the vocabularies of Llama and GPT-2, by a model's block."""
RECIPES = {run.name: run for run in tiny_recipes()}
"""The package's own recipes, which need no corpus: they prepare a small one."""
BASES = {"tiny": replace(RECIPES["tiny-lory"], name="tiny")} | {
    size: replace(quickstart_run("lory", size), name=size) for size in SIZES
}
"""Runs of the tiny recipes and the quickstart by names without a design; `loriini recipes` omits them."""
GROUP = "loriini.recipes"
"""Entry points of installed packages. One named NAME holds that recipe: a `TrainConfig`, a function that
returns one, or a `Recipe`. One named `PREFIX*` holds a mapping of recipes whose names begin with PREFIX."""


@dataclass(frozen=True)
class Recipe:
    """A run, and the parameter counts that its publication prints; None where it prints none."""

    run: TrainConfig
    published_total: float | None = None
    published_active: float | None = None


def recipe_names() -> list[str]:
    """Names of all recipes, those of installed packages last; warns of a mapping that cannot be imported."""
    names = list(RECIPES)
    for entry in entry_points(group=GROUP):
        try:
            names += load(entry) if entry.name.endswith("*") else [entry.name]
        except InputError as error:
            warn(error)
    return list(dict.fromkeys(names))


def load(entry: EntryPoint) -> Any:
    """Import the object of an entry point. InputError if that fails, or if `PREFIX*` is no mapping."""
    try:
        value = entry.load()
    except Exception as error:
        raise InputError(f"recipe {entry.name}: {entry.value} cannot be imported ({error})") from error
    if entry.name.endswith("*") and not isinstance(value, Mapping):
        raise InputError(f"recipe {entry.name}: {entry.value} must be a mapping of recipes by name")
    return value


def installed_recipe(name: str) -> Recipe | None:
    """The recipe that an installed package has by this name; imports only entry points that may have it."""
    for entry in entry_points(group=GROUP):
        found = None
        if entry.name == name:
            found = load(entry)
        elif entry.name.endswith("*") and name.startswith(entry.name[:-1]):
            found = load(entry).get(name)
        if found is not None:
            return found if isinstance(found, Recipe) else Recipe(as_run(found, f"recipe {name}"))
    return None


def find_recipe(name: str) -> TrainConfig:
    """The run of a recipe by name, or of `FILE.json` or `FILE.toml`.

    InputError for an unknown name and for a file that cannot be read.
    """
    if Path(name).suffix in READERS:
        return read_run_file(Path(name), lambda base: named_recipe(base).run)
    return named_recipe(name).run


def named_recipe(name: str) -> Recipe:
    """The recipe of this name, ours or an installed package's. InputError for an unknown one."""
    if run := (RECIPES | BASES).get(name):
        return Recipe(run)
    if found := installed_recipe(name):
        return found
    if Path(name, RUN).exists():
        raise InputError(f"{name}: a run's folder; give {Path(name, RUN)}, or --resume {name}")
    if Path(name).is_file():
        raise InputError(f"{name}: not a file of settings; give FILE.toml or FILE.json")
    hint = nearest(str(name), recipe_names())
    raise InputError(f"no recipe is named {name!r}; {hint}`loriini recipes` lists more")


def is_tiny(name: str) -> bool:
    """Whether a recipe, or the recipe that a file of settings changes, is "tiny" or in RECIPES."""
    path = Path(name)
    return (str(read_values(path).get("recipe")) if path.suffix in READERS else name) in (*RECIPES, "tiny")


def describe(name: str) -> dict[str, Any]:
    """A recipe's sizes, its parameters at its default vocabulary, and the published parameters as printed."""
    recipe = named_recipe(name)
    run, vocabulary = recipe.run, default_vocabulary(recipe.run, name)
    total, active = run.config(vocabulary).parameters()
    return {
        "name": name,
        "experts": run.model.num_experts,
        "width": run.model.hidden_size,
        "layers": run.model.num_hidden_layers,
        "context": run.length,
        "vocabulary": vocabulary,
        "parameters_total": total,
        "parameters_active": active,
        "published_total": recipe.published_total,
        "published_active": recipe.published_active,
    }


def default_vocabulary(run: TrainConfig, recipe: str = "") -> int:
    """A run's vocabulary where there is no corpus yet: the small corpus's for RECIPES, else its block's."""
    return SMALL_VOCABULARY if is_tiny(recipe) else VOCABULARY.get(run.model.block, VOCABULARY["llama"])
