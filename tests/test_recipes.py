"""Recipes build, hold the parameters they tell of, and agree with the paper's table 1."""

import pytest
import torch

from loriini import LoriiniForCausalLM
from loriini.published import LORY
from loriini.recipes import RECIPES, SIZES, VOCABULARY, describe, quickstart_run
from loriini.routing import DESIGNS

PRINTED = {
    "0.3b-lory-8e": "1.8",
    "0.3b-lory-16e": "3.5",
    "0.3b-lory-32e": "6.8",
    "1.5b-lory-8e": "7.8",
    "1.5b-lory-16e": "15.0",
    "1.5b-lory-32e": "29.5",
    "7b-lory-4e": "19.7",
}
KEYS = {"name", "parameters_total", "parameters_active", "published_total", "published_active"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_with_the_parameters_it_tells_of(name: str) -> None:
    run = RECIPES[name]()
    assert run.name == name
    with torch.device("meta"):
        model = LoriiniForCausalLM(run.config(VOCABULARY[run.model.block], 2))
    assert sum(p.numel() for p in model.parameters()) == describe(name)["parameters_total"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_described_by_the_contracts_keys(name: str) -> None:
    described = describe(name)
    assert described.keys() == KEYS
    assert 0 < described["parameters_active"] <= described["parameters_total"]


@pytest.mark.parametrize("name", RECIPES)
def test_the_command_line_trains_every_recipe(name: str) -> None:
    RECIPES[name]().check()


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_totals_are_the_papers_to_the_digits_printed(name: str, printed: str) -> None:
    described = describe(name)
    assert f"{described['parameters_total'] / 1e9:.1f}" == printed
    assert described["published_total"] == float(printed) * 1e9


@pytest.mark.parametrize("name", LORY)
def test_active_parameters_are_the_dense_models_and_the_routers(name: str) -> None:
    dense, described = describe(f"{name.split('-')[0]}-dense"), describe(name)
    shape = RECIPES[name]().model
    routers = shape.num_hidden_layers * shape.hidden_size * shape.num_experts if shape.num_experts > 1 else 0
    assert described["parameters_active"] == dense["parameters_total"] + routers


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("tiny-")])
def test_small_recipes_make_twenty_steps_and_end_as_mixtures(name: str) -> None:
    run = RECIPES[name]()
    assert run.steps >= 20
    assert run.copy_step < 20


def test_autonomous_experts_hold_as_many_parameters_as_routed_ones() -> None:
    aoe, mixtral = (describe(f"tiny-{name}")["parameters_total"] for name in ("aoe", "mixtral"))
    assert aoe == pytest.approx(mixtral, rel=0.03)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_is_a_run_of_the_quickstart(design: str, size: str) -> None:
    run = quickstart_run(design, size, steps=0, seed=3)
    run.check()
    assert (run.steps, run.seed, run.routing.segment_length) == (SIZES[size].steps, 3, 128)
    assert (run.copy_step > 0) == (design != "dense" and DESIGNS[design].preserves_dense)
