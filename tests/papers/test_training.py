"""The papers' recipes train as published, and fit on the papers' GPUs as they are shipped."""

from collections.abc import Mapping
from typing import Any

import pytest

from loriini import LoriiniConfig
from loriini.estimate.choice import choose
from loriini.estimate.memory import GIB, memory_by_option
from loriini.papers.published import PAPERS
from loriini.papers.recipes import RECIPES
from loriini.recipes import VOCABULARY

TRAINING = {size: values for paper in PAPERS for size, values in paper.get("training", {}).items()}
"""How the models were trained, by the first part of a recipe's name: its size."""


def published(name: str) -> Mapping[str, Any]:
    return TRAINING[name.split("-")[0]]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_as_published(name: str) -> None:
    run, paper = RECIPES[name].run, published(name)
    tokens_per_step = run.batch_size * run.length
    assert tokens_per_step == pytest.approx(paper["tokens_per_step"], rel=0.05)  # of "1 M" and "4.2 M"
    assert run.steps * tokens_per_step == pytest.approx(paper["tokens"], rel=1e-3)
    assert run.length == paper["length"]
    assert run.order == paper.get("order")
    rates = run.optimizer
    assert rates.schedule == "cosine"
    assert rates.learning_rate == paper["learning_rate"]
    assert rates.learning_rate * rates.final_rate == pytest.approx(paper["final_learning_rate"])
    assert rates.router_rate == rates.expert_rate == 1
    warmup = paper["warmup"] if paper["warmup"] < 1 else paper["warmup"] / run.steps
    assert rates.warmup == pytest.approx(warmup)
    assert list(rates.betas) == paper["betas"]
    assert rates.weight_decay == paper["weight_decay"]
    assert rates.clip == paper["clip"]
    assert run.model.dropout == paper["dropout"]
    assert run.warmup.dense_share == paper["dense_share"]
    shape = run.model
    assert (shape.num_hidden_layers, shape.hidden_size) == (paper["layers"], paper["hidden_size"])
    assert shape.num_attention_heads == paper["heads"]
    assert run.routing.segment_length == 256  # Lory, section 4.1


def test_assumptions_are_fields_of_the_data() -> None:
    for paper in TRAINING.values():
        assert set(paper["assumed"]) <= paper.keys()


def config_of(name: str) -> LoriiniConfig:
    run = RECIPES[name].run
    return run.config(VOCABULARY[run.model.block], 0)


BY_PARAMETERS = sorted(RECIPES, key=lambda name: config_of(name).parameters())
LARGEST = {name.split("-")[0]: name for name in BY_PARAMETERS}
"""Size → the recipe of it that has most parameters."""


@pytest.mark.parametrize("name", LARGEST.values())
def test_a_recipe_fits_on_the_papers_gpus_as_it_is(name: str) -> None:
    run, paper = RECIPES[name].run, published(name)
    run.check(processes=paper["gpus"])
    config = config_of(name)
    memory_of, limit = memory_by_option(run, config, paper["gpus"]), paper["gpu_memory"] * GIB
    run, _ = choose(run, config, paper["gpus"], limit, memory_of)
    size = run.instances_at_once(run.batch_size // paper["gpus"])
    memory = memory_of(size, run.model.recompute_merge is True, run.speed.activation_checkpointing)
    assert memory.total <= limit
