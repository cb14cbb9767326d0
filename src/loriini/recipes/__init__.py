"""Named runs: functions that return a whole `Run`; a variant calls its parent and changes one field."""

from collections.abc import Callable
from typing import Any

from loriini.recipes import aoe, design_choices, lory
from loriini.recipes.small import SIZES, Size, quickstart_run, tiny_aoe, tiny_dense, tiny_lory, tiny_mixtral
from loriini.train.run import Run

VOCABULARY = {"llama": 32_000, "gpt2": 50_257}
"""The papers' vocabularies: Llama's tokenizer and GPT-2's, by the block that they train with."""


def _recipes() -> dict[str, Callable[[], Run]]:
    small = (tiny_dense(), tiny_lory(), tiny_mixtral(), tiny_aoe())
    runs = (*small, *lory.runs(), *design_choices.runs(), *aoe.runs())
    return {run.name: lambda run=run: run for run in runs}  # type: ignore[misc]


RECIPES = _recipes()


def describe(name: str) -> dict[str, Any]:
    """A recipe's name and parameters with its paper's vocabulary, and the published ones as printed."""
    from loriini.published import PARAMETERS

    run = RECIPES[name]()
    total, active = run.config(VOCABULARY[run.model.block], 2).parameters()
    published = PARAMETERS.get(name, {})
    return {
        "name": name,
        "parameters_total": total,
        "parameters_active": active,
        "published_total": published.get("total"),
        "published_active": published.get("active"),
    }


__all__ = ["RECIPES", "SIZES", "VOCABULARY", "Size", "describe", "quickstart_run"]
