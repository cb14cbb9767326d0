"""Trainer with `RoutingCallback` does between steps what Loriini's own loop does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from trainers import arguments
from transformers import Trainer

from loriini import DESIGNS, LoriiniForCausalLM
from loriini.data.batches.dataset import InstanceDataset
from loriini.routing import RoutingConfig
from loriini.train.callback import RoutingCallback
from runs import EOS, VOCABULARY, Pattern, tiny_run
from tiny import random_ids

MICRO_BATCHES, LAYERS, STEPS = 2, 2, 3
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated",  # peft asks transformers by its old name
    "ignore:.*pin_memory.*no accelerator is found",
)


def model_of(design: str | RoutingConfig) -> LoriiniForCausalLM:
    run = tiny_run("random")
    routing = DESIGNS[design] if isinstance(design, str) else design
    return LoriiniForCausalLM(replace(run, routing=routing).config(VOCABULARY, EOS))


def trainer_of(model: nn.Module, folder: Path) -> Trainer:
    settings = arguments(
        folder, max_steps=STEPS, per_device_train_batch_size=2, gradient_accumulation_steps=MICRO_BATCHES
    )
    examples = InstanceDataset(Pattern())
    return Trainer(
        model, settings, train_dataset=examples, eval_dataset=examples, callbacks=[RoutingCallback()]
    )


def test_the_micro_batches_of_a_step_share_its_draw(drawn: list[int], tmp_path: Path) -> None:
    model = model_of("random")
    trainer_of(model, tmp_path).train()
    first = drawn[0]
    assert first > 1 << 32  # sequences are evaluated with draws from 0 on
    assert drawn == [first + step for step in range(STEPS) for _ in range(MICRO_BATCHES * LAYERS)]
    drawn.clear()
    trainer_of(model, tmp_path).train()
    assert drawn[0] == first + STEPS  # further training draws anew


@pytest.mark.parametrize("adapted", [False, True])
def test_biases_move_by_their_step_each_step_and_not_in_evaluation(adapted: bool, tmp_path: Path) -> None:
    step = 0.25
    model = model_of(replace(DESIGNS["deepseek-v3"], balance_bias=step))
    biases = [mixture.router.balance_bias for mixture in model.model.mixtures]
    trained = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])) if adapted else model
    trainer = trainer_of(trained, tmp_path)
    trainer.train()
    for bias in biases:
        moves = bias / step
        assert torch.equal(moves, moves.round())
        assert 0 < moves.abs().max() <= STEPS
    before = [bias.clone() for bias in biases]
    trainer.evaluate()
    assert all(map(torch.equal, biases, before))


def test_a_bias_follows_the_choices_of_its_own_step(tmp_path: Path) -> None:
    settings, callback = arguments(tmp_path), RoutingCallback()
    model = model_of("deepseek-v3").train()
    callback.on_train_begin(settings, None, None, model=model)
    for batch in (64, 1, 1):  # the first step's choices would outweigh the others'
        before = [mixture.router.balance_bias.clone() for mixture in model.model.mixtures]
        callback.on_step_begin(settings, None, None, model=model)
        with torch.no_grad():
            routings = model(random_ids(batch)).routings
        callback.on_optimizer_step(settings, None, None, model=model)
        for mixture, earlier, routing in zip(model.model.mixtures, before, routings, strict=True):
            chosen = (routing.gates > 0).float().sum(0)
            moved = DESIGNS["deepseek-v3"].balance_bias * (chosen.mean() - chosen).sign()
            torch.testing.assert_close(mixture.router.balance_bias, earlier + moved)
    callback.on_train_end(settings, None, None)
