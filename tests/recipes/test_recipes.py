"""Recipes build, hold the parameters they are described with, and are the papers' in size and routing."""

from dataclasses import replace

import pytest

from loriini import DESIGNS
from loriini.papers.published import PARAMETERS
from loriini.papers.recipes import RECIPES as PAPERS
from loriini.recipes import BASES, RECIPES, VOCABULARY, describe, find_recipe, recipe_names
from loriini.recipes.small import SIZES, quickstart_run
from loriini.train import launch
from loriini.train.config import TrainConfig
from loriini.train.corpora import SMALL_VOCABULARY

CHOICES = {name: recipe.run for name, recipe in PAPERS.items() if name.startswith("gpt2")}
AOE = {name: recipe.run for name, recipe in PAPERS.items() if name.startswith(("732m", "4b"))}
GPT2 = "gpt2-small"
LARGER = 12 * (8 * 256 * 768 - 8 * 768)
"""Parameters that AoE's large routers have more than ordinary ones."""
KEYS = {
    *("name", "experts", "width", "layers", "context", "vocabulary"),
    *("parameters_total", "parameters_active", "published_total", "published_active"),
}


@pytest.mark.parametrize("name", [*recipe_names(), *BASES])
def test_a_recipe_builds_with_the_parameters_it_is_described_with(name: str) -> None:
    run = find_recipe(name)
    run.check()
    assert run.name == name
    assert run.batch_size % run.instances_at_once() == 0
    described = describe(name)
    assert described.keys() == KEYS
    assert 0 < described["parameters_active"] <= described["parameters_total"]


@pytest.mark.parametrize("name", [name for name in PARAMETERS if "lory" in name])
def test_lorys_totals_are_the_papers_to_the_digits_printed(name: str) -> None:
    described = describe(name)
    ours, printed = (f"{described[total] / 1e9:.1f}" for total in ("parameters_total", "published_total"))
    assert ours == printed


@pytest.mark.parametrize("name", [name for name in PARAMETERS if "lory" in name or name.endswith("-dense")])
def test_lorys_active_parameters_are_the_dense_models_and_the_routers(name: str) -> None:
    dense, described, shape = describe(f"{name.split('-')[0]}-dense"), describe(name), find_recipe(name).model
    routers = shape.num_hidden_layers * shape.hidden_size * shape.num_experts if shape.num_experts > 1 else 0
    assert described["parameters_active"] == dense["parameters_total"] + routers


@pytest.mark.parametrize("name", [name for name in CHOICES if name in PARAMETERS])
def test_design_choices_parameters_agree_to_1_percent(name: str) -> None:
    described = describe(name)
    assert described["parameters_total"] == pytest.approx(described["published_total"], rel=0.01)
    assert described["parameters_active"] == pytest.approx(described["published_active"], rel=0.01)


def uncounted(run: TrainConfig) -> tuple[int, int]:
    """(total, active) parameters of ours that AoE's paper does not count; see `published`."""
    shape, total, active = run.model, 0, 0
    if run.name.startswith("732m"):
        total += 32_000 * shape.hidden_size
    if run.routing.scorer == "mlp":
        total += LARGER
        active += LARGER
    if run.routing.scorer == "activation_norm":
        active += shape.num_hidden_layers * 6 * (shape.low_rank or 0) * shape.hidden_size
    return total, active


@pytest.mark.parametrize("name", AOE)
def test_aoe_parameters_agree_to_1_percent_counted_as_the_paper_counts(name: str) -> None:
    described, (total, active) = describe(name), uncounted(AOE[name])
    assert described["parameters_total"] - total == pytest.approx(described["published_total"], rel=0.01)
    if AOE[name].routing.selection == "top_p":
        assert described["published_active"] is None
    else:
        found = described["parameters_active"] - active
        assert found == pytest.approx(described["published_active"], rel=0.01)


def test_aoe_baselines_differ_from_what_they_stand_beside_in_one_thing() -> None:
    large, aux = (describe(f"732m-moe-aux{name}")["parameters_total"] for name in ("-large-router", ""))
    assert large - aux == pytest.approx(LARGER, rel=1e-3)
    aux_run = AOE["732m-moe-aux"]
    without = replace(aux_run.routing, load_balance=0.0)
    assert replace(aux_run, name="732m-moe", routing=without) == AOE["732m-moe"]
    aoe_aux, factorized = AOE["732m-aoe-256-aux"], AOE["732m-moe-aux-factorized"]
    assert aoe_aux.routing == DESIGNS["aoe"]
    assert replace(aoe_aux, name=factorized.name, routing=factorized.routing) == factorized


def test_gates_and_losses_of_the_design_choices_paper() -> None:
    gates = {name: run.routing.gates for name, run in CHOICES.items()}
    for unit in ("token", "sequence", "global"):  # equation 1
        assert gates[f"{GPT2}-{unit}-top1"] == DESIGNS["switch"].gates == "softmax_all"
    assert gates[f"{GPT2}-token-top3"] == DESIGNS["mixtral"].gates == "softmax_selected"
    assert gates[f"{GPT2}-sequence-top3"] == gates[f"{GPT2}-global-top2"] == "softmax_twice"
    balanced = {name: run.routing.load_balance for name, run in CHOICES.items() if run.routing.load_balance}
    assert balanced == {f"{GPT2}-sequence-top{k}-balanced": 0.01 for k in (2, 3)}


def test_tiny_recipes_make_twenty_steps_and_mixtures_of_equal_size() -> None:
    tiny = list(RECIPES.values())
    assert len(tiny) == 4
    assert all(run.steps >= 20 for run in tiny)
    aoe, mixtral = (describe(f"tiny-{name}")["parameters_total"] for name in ("aoe", "mixtral"))
    assert aoe == pytest.approx(mixtral, rel=0.03)


def test_every_design_is_a_run_of_the_quickstart() -> None:
    sizes = list(SIZES)
    for i, name in enumerate(DESIGNS):
        size = sizes[i % len(sizes)]
        run = quickstart_run(name, size, seed=3)
        run.check()
        assert (run.steps, run.seed, run.routing.segment_length) == (SIZES[size].steps, 3, 128)
        assert run.copy_step == 0


def test_the_recipe_decides_the_vocabulary_whatever_the_run_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "estimate", lambda run, vocab_size, *_: vocab_size)
    for recipe, vocabulary in (("tiny-dense", SMALL_VOCABULARY), ("0.3b-dense", VOCABULARY["llama"])):
        named = ["--name", "0.3b-dense" if "tiny" in recipe else "tiny-dense"]
        assert launch.dry_run(recipe, named) == vocabulary == describe(recipe)["vocabulary"]
