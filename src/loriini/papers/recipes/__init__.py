"""The papers' models as recipes, with the parameters that the papers print for them."""

from loriini.papers.published import PARAMETERS
from loriini.papers.recipes.aoe import aoe_recipes
from loriini.papers.recipes.design_choices import design_choices_recipes
from loriini.papers.recipes.lory import lory_recipes
from loriini.recipes import Recipe

RECIPES = {
    run.name: Recipe(run, **{f"published_{which}": n for which, n in PARAMETERS.get(run.name, {}).items()})
    for run in (*lory_recipes(), *design_choices_recipes(), *aoe_recipes())
}
