"""A recipe: the settings of a run."""

from dataclasses import replace

from loriini.recipes import find_recipe
from loriini.routing import DESIGNS
from loriini.train.config import TrainConfig
from loriini_example import router  # noqa: F401  registers the design


def tiny_cosine() -> TrainConfig:
    """The package's tiny recipe with the cosine router; the selection admits no dense warm-up."""
    tiny = find_recipe("tiny-mixtral")
    warmup = replace(tiny.warmup, dense_share=0.0)
    return replace(tiny, name="tiny-cosine", routing=DESIGNS["cosine"], warmup=warmup)
