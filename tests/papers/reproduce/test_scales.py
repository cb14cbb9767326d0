"""The papers' runs made small keep what their findings are about."""

import math

import pytest

from loriini.papers.published import PaperRun
from loriini.papers.reproduce.scales import PAPER, SMALL, TINY, Scale, paper_run, scaled_run

RECIPES = "0.3b-dense 0.3b-lory-8e 1.5b-lory-32e 7b-lory-4e gpt2-small-sequence-top2 732m-aoe-256 4b-aoe"


@pytest.mark.parametrize("scale", [TINY, SMALL], ids=lambda scale: scale.name)
@pytest.mark.parametrize("recipe", RECIPES.split())
def test_a_scaled_run_keeps_proportions_and_design(recipe: str, scale: Scale) -> None:
    full, scaled = paper_run(PaperRun(recipe)), scaled_run(PaperRun(recipe), scale)
    ratio = scaled.model.hidden_size / full.model.hidden_size
    assert abs(scaled.model.intermediate_size - ratio * full.model.intermediate_size) <= 4  # multiples of 8
    assert scaled.model.num_experts == full.model.num_experts
    assert (scaled.routing.unit, scaled.routing.selection) == (full.routing.unit, full.routing.selection)
    assert (scaled.warmup, scaled.order) == (full.warmup, full.order)
    assert scaled.length // scaled.routing.segment_length == SMALL.length // SMALL.segment_length


@pytest.mark.parametrize("recipe", RECIPES.split())
def test_initial_weights_are_wider_where_the_model_is_narrower(recipe: str) -> None:
    model = scaled_run(PaperRun(recipe), SMALL).model
    assert math.isclose(model.initializer_range, 0.02 * math.sqrt(1024 / model.hidden_size))


@pytest.mark.parametrize("recipe", RECIPES.split())
def test_at_the_papers_scale_runs_are_the_recipes(recipe: str) -> None:
    run = paper_run(PaperRun(recipe))
    assert scaled_run(PaperRun(recipe), PAPER) == run
    assert PAPER.segment_length == run.routing.segment_length
