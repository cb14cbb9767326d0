"""A recipe: the settings of a run."""

from dataclasses import replace

from loriini.recipes import find_recipe
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig
from loriini_example import router  # noqa: F401  registers the design


def tiny_cosine() -> TrainConfig:
    """The package's tiny recipe with the cosine router."""
    return replace(find_recipe("tiny-mixtral"), name="tiny-cosine", routing=DESIGNS["cosine"])
