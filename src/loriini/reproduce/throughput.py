"""Training steps of several runs' models, timed in turn on this machine, and the memory of each."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from loriini.bench import in_turn
from loriini.estimate.activations import saved_bytes
from loriini.hardware import autocast, pick_device
from loriini.model import LoriiniForCausalLM
from loriini.train.optimizer import make_optimizer
from loriini.train.run import Run

ADAM = 4 * 4
"""Bytes of a parameter in training: weight, gradient and two moments in float32."""


def step_rates(runs: Mapping[str, Run], vocab_size: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of each run's training step, for each of `rounds` rounds in which all take a turn."""
    torch.manual_seed(0)
    steps = [training_step(run, vocab_size) for run in runs.values()]
    tokens = [run.batch_size * run.length for run in runs.values()]
    timed = zip(*in_turn(steps, rounds), strict=True)
    return {
        name: [count / seconds for seconds in of_run]
        for name, count, of_run in zip(runs, tokens, timed, strict=True)
    }


def memory(run: Run, vocab_size: int) -> float:
    """GB of weights, gradients, optimizer state, and what a forward pass saves for the backward pass."""
    model, forward = model_and_forward(run, vocab_size)
    parameters = sum(p.numel() for p in model.parameters())
    return (ADAM * parameters + saved_bytes(model, forward)) / 1e9


def training_step(run: Run, vocab_size: int) -> Callable[[], object]:
    """A function that takes one step, without data or clipping."""
    model, forward = model_and_forward(run, vocab_size)
    optimizer = make_optimizer(model, run.optimizer)

    def step() -> None:
        forward().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def model_and_forward(run: Run, vocab_size: int) -> tuple[LoriiniForCausalLM, Callable[[], Any]]:
    """A run's model with random weights, and a function that returns the loss of a random batch."""
    model = LoriiniForCausalLM(run.config(vocab_size, eos_token_id=0)).to(pick_device()).train()
    ids = torch.randint(vocab_size, (run.batch_size, run.length), device=pick_device())

    def forward() -> Any:
        with autocast(run.precision):
            return model(ids, labels=ids, use_cache=False).loss

    return model, forward
