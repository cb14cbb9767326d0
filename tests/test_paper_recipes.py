"""The recipes of the design-choices paper and of AoE: sizes, routing and training are the papers'."""

from dataclasses import replace

import pytest

from loriini import DESIGNS
from loriini.errors import InputError
from loriini.published import PARAMETERS
from loriini.recipes import RECIPES, aoe, describe, design_choices
from loriini.train.run import Run

CHOICES = {run.name: run for run in design_choices.runs()}
AOE = {run.name: run for run in aoe.runs()}
PAPERS = {**CHOICES, **AOE}
NAME = "gpt2-small"
LARGER = 12 * (8 * 256 * 768 - 8 * 768)
"""What AoE's large routers have more than ordinary ones."""


def close(found: float, published: float) -> bool:
    """To the papers' digits, or 1 %."""
    return abs(found - published) <= 0.01 * published


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_trains_from_scratch_and_comes_back_from_json(name: str) -> None:
    run = PAPERS[name]
    assert RECIPES[name]() == run
    assert run.copy_step == 0
    assert run.batch_size % run.micro_batch_size == 0
    assert Run.from_dict(run.to_dict()) == run


def test_routing_by_language_has_an_expert_for_each_of_four() -> None:
    run = CHOICES[f"{NAME}-language"]
    run.check(("de", "en", "fr", "it"))
    with pytest.raises(InputError, match="num_experts is 4 and there are 5 labels: de, en, es, fr, it"):
        run.check(("de", "en", "es", "fr", "it"))


def test_what_is_published_is_of_a_recipe() -> None:
    assert PARAMETERS.keys() <= RECIPES.keys()


@pytest.mark.parametrize("name", [name for name in CHOICES if name in PARAMETERS])
def test_design_choices_parameters_agree(name: str) -> None:
    described = describe(name)
    assert close(described["parameters_total"], described["published_total"])
    assert close(described["parameters_active"], described["published_active"])


def left_out(run: Run) -> tuple[int, int]:
    """(total, active) parameters of ours that AoE's paper does not count; `published` says which."""
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
def test_aoe_parameters_agree_counted_as_the_paper_counts(name: str) -> None:
    described, (total, active) = describe(name), left_out(AOE[name])
    assert close(described["parameters_total"] - total, described["published_total"])
    if AOE[name].routing.selection == "top_p":
        assert described["published_active"] is None
    else:
        assert close(described["parameters_active"] - active, described["published_active"])


def test_the_large_router_decides_by_as_many_parameters_as_autonomous_experts() -> None:
    large, aux = (describe(f"732m-moe-aux{name}")["parameters_total"] for name in ("-large-router", ""))
    assert large - aux == pytest.approx(LARGER, rel=1e-3)


def test_the_papers_widths() -> None:
    widths = {name: run.config(32_000, 2).expert_width for name, run in AOE.items()}
    assert widths["732m-moe"] == widths["732m-moe-aux-large-router"] == 3072
    assert widths["732m-moe-aux-factorized"] == widths["732m-aoe-256"] == 3840
    assert widths["4b-aoe"] == pytest.approx(6470, abs=4)


def test_every_row_of_the_design_choices_tables() -> None:
    rows = {
        (r.routing.unit, r.routing.scope, r.routing.top_k, r.model.num_experts, r.routing.scorer)
        for r in CHOICES.values()
        if r.model.num_experts > 1
    }
    for unit in ("token", "sequence"):
        for experts, k in ((2, 2), (4, 2), (6, 2), (4, 1), (4, 3)):  # table 2
            assert (unit, "layer", k, experts, "linear") in rows
        for scorer in ("frozen", "random"):  # table 3
            assert (unit, "layer", 2, 4, scorer) in rows
    for scorer, k in (("linear", 1), ("linear", 2), ("label", 1)):  # tables 1 and 3
        assert ("sequence", "global", k, 4, scorer) in rows


def test_gates_of_the_design_choices_paper() -> None:
    gates = {name: run.routing.gates for name, run in CHOICES.items()}
    for unit in ("token", "sequence", "global"):  # equation 1
        assert gates[f"{NAME}-{unit}-top1"] == DESIGNS["switch"].gates == "softmax_all"
    assert gates[f"{NAME}-token-top3"] == DESIGNS["mixtral"].gates == "softmax_selected"
    assert gates[f"{NAME}-sequence-top3"] == gates[f"{NAME}-global-top2"] == "softmax_twice"


def test_training_is_as_published() -> None:
    small = CHOICES[NAME]
    assert small.steps == 6000
    assert small.batch_size * small.length == 1_048_576
    assert small.optimizer.learning_rate * small.optimizer.final_rate == pytest.approx(9.6e-5)
    for run in CHOICES.values():
        changed = replace(run, name=NAME, routing=small.routing, model=small.model)
        assert changed == small
    for name, run in AOE.items():
        rates = run.optimizer
        assert rates.learning_rate == (3.2e-4 if name.startswith("4b") else 2e-4)
        assert rates.learning_rate * rates.final_rate == pytest.approx(1.28e-5)
        assert rates.warmup * run.steps == pytest.approx(4800)
        assert run.steps * run.batch_size * run.length == pytest.approx(100e9, rel=1e-3)


def test_a_configuration_differs_from_the_one_it_stands_beside_in_one_thing() -> None:
    aux = AOE["732m-moe-aux"]
    assert replace(aux, name="732m-moe", routing=replace(aux.routing, load_balance=0.0)) == AOE["732m-moe"]
    aoe_aux = AOE["732m-aoe-256-aux"]
    assert aoe_aux.routing == DESIGNS["aoe"]
    factorized = AOE["732m-moe-aux-factorized"]
    assert replace(aoe_aux, name=factorized.name, routing=factorized.routing) == factorized
