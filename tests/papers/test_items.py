"""Every figure and table has an item whose runs exist."""

from dataclasses import replace
from typing import get_args

import pytest

from loriini import DESIGNS
from loriini.evaluate.settings import EvaluationRouting, RouterFree
from loriini.papers.published import ITEMS, PARAMETERS, VALUES, published_values
from loriini.papers.recipes import RECIPES
from loriini.recipes import find_recipe
from loriini.train.overrides.apply import override

PRINTED = (
    *(f"lory-table{number}" for number in range(1, 10)),
    *(f"lory-fig{number}" for number in ("2-left", "2-right", *range(3, 12))),
    "lory-appendix-b",
    *(f"design-choices-table{number}" for number in range(1, 4)),
    *(f"design-choices-fig{number}" for number in range(1, 5)),
    *(f"design-choices-{name}" for name in ("collapse", "assignment")),
    *(f"design-choices-{name}-assignment" for name in ("random", "token")),
    *(f"aoe-table{number}" for number in range(1, 8)),
    *(f"aoe-fig{number}" for number in range(2, 6)),
)
"""All but the diagrams, the first figure of Lory and of AoE."""


def test_every_figure_and_table_is_an_item() -> None:
    assert sorted(ITEMS) == sorted(PRINTED)
    assert len({item.finding for item in ITEMS.values()}) == len(ITEMS) - 2  # tables 6, 9; figures 3, 4


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_has_its_published_values_unless_they_are_only_drawn(name: str) -> None:
    item, values = ITEMS[name], published_values(name)
    assert values or "table" not in name
    assert {value.row for value in values} <= item.runs.keys() | {"setup"}
    if "table" in name:
        assert item.runs.keys() <= {value.row for value in values}
    for text in (item.title, item.source, item.finding):
        assert text.strip() == text != ""
    assert item.finding.endswith(".")


def test_every_value_belongs_to_an_item() -> None:
    assert {value.item for value in VALUES} <= ITEMS.keys()


@pytest.mark.parametrize("name", ITEMS)
def test_the_runs_of_an_item_exist(name: str) -> None:
    item = ITEMS[name]
    assert bool(item.runs) == bool(item.texts) == (name != "aoe-fig5")
    assert len(set(item.runs.values())) == len(item.runs)
    for run in item.runs.values():
        recipe = find_recipe(run.recipe)
        trained = override(recipe, run.overrides)
        assert not run.design or replace(trained, routing=DESIGNS[run.design]) != trained
        assert not run.overrides or trained != recipe
        assert not run.router_free or str(RouterFree.parse(run.router_free)) == run.router_free
        assert run.routing in get_args(EvaluationRouting)


def test_columns_are_the_texts_where_runs_are_trained_on_several() -> None:
    for item in ITEMS.values():
        if len(item.texts) > 1:
            columns = {v.column for v in published_values(item.id) if v.unit == "perplexity"}
            assert columns <= set(item.texts)


def test_recipes_of_the_papers_are_needed() -> None:
    needed = {run.recipe for item in ITEMS.values() for run in item.runs.values()}
    assert RECIPES.keys() == needed
    assert PARAMETERS.keys() <= needed
