"""Named runs. A recipe is a whole `Run`; a variant changes a few fields of another recipe."""

from typing import Any

from loriini.published import PARAMETERS
from loriini.recipes.aoe import aoe_recipes
from loriini.recipes.design_choices import design_choices_recipes
from loriini.recipes.lory import lory_recipes
from loriini.recipes.redesign import with_design, with_routing
from loriini.recipes.small import SIZES, Size, families, quickstart_run, tiny_recipes

VOCABULARY = {"llama": 32_000, "gpt2": 50_257}
"""The papers' vocabularies, Llama's and GPT-2's, by the block that they train with."""

RECIPES = {
    run.name: run for run in (*tiny_recipes(), *lory_recipes(), *design_choices_recipes(), *aoe_recipes())
}


def describe(name: str) -> dict[str, Any]:
    """A recipe's name and parameters with its paper's vocabulary, and the published ones as printed."""
    run, published = RECIPES[name], PARAMETERS.get(name, {})
    total, active = run.config(VOCABULARY[run.model.block], 2).parameters()
    return {
        "name": name,
        "parameters_total": total,
        "parameters_active": active,
        "published_total": published.get("total"),
        "published_active": published.get("active"),
    }


__all__ = [
    "RECIPES",
    "SIZES",
    "VOCABULARY",
    "Size",
    "describe",
    "families",
    "quickstart_run",
    "with_design",
    "with_routing",
]
