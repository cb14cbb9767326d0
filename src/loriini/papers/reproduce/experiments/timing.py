"""Training steps, timed in turn on this machine, and the memory of training."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loriini.bench.timing import Case, Work, in_rounds
from loriini.common.hardware import pick_device
from loriini.common.progress import progress
from loriini.estimate.activations import saved_bytes
from loriini.model import LoriiniForCausalLM
from loriini.papers.published import ITEMS
from loriini.papers.reproduce.scales import Scale, scaled_run
from loriini.train.config import TrainConfig

TIMED = {
    "tiny": Scale("tiny", {"0.3b": (256, 2, 4), "732m": (192, 2, 3)}, batch_size=2, length=1024),
    "small": Scale("small", {"0.3b": (512, 4, 8), "732m": (384, 4, 6)}, batch_size=4, length=1024),
    "paper": Scale("paper", {"0.3b": (1024, 24, 16), "732m": (768, 12, 12)}, batch_size=4, length=4096),
}
"""Models that are timed; `paper` is for a GPU."""
ROUNDS = {"tiny": 4, "small": 12, "paper": 16}
"""Even numbers: each case is measured before and after the others equally often."""


def timed_runs(item: str, scale: Scale) -> dict[str, TrainConfig]:
    """The models of an item in the size that is timed at a scale, mixtures from their first step."""
    size = replace(TIMED[scale.name], segment_length=256)
    runs = {row: scaled_run(paper, size) for row, paper in ITEMS[item].runs.items()}
    return {row: replace(run, warmup=replace(run.warmup, dense_share=0)) for row, run in runs.items()}


def step_rates(runs: Mapping[str, TrainConfig], scale: Scale) -> dict[str, list[float]]:
    """Tokens per second of each run's training step by round."""
    builds = {row: partial(build_step, run, scale.vocab_size) for row, run in runs.items()}
    seconds = in_turns(builds, ROUNDS[scale.name])
    return {row: [run.batch_size * run.length / each for each in seconds[row]] for row, run in runs.items()}


def in_turns(builds: Mapping[str, Callable[[], Work]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each work in each round of `in_rounds`."""
    cases = [Case(name, 1, build) for name, build in builds.items()]
    found: dict[str, list[float]] = {name: [] for name in builds}
    with progress("timing", rounds) as advance:
        for of_round in in_rounds(cases, rounds):
            for name, seconds in zip(found, of_round, strict=True):
                found[name].append(seconds)
            advance()
    return found


def new_model(run: TrainConfig, vocab_size: int) -> tuple[Any, Tensor]:
    """A run's model with initial weights, and a batch of random tokens."""
    torch.manual_seed(0)
    device = pick_device()
    model = LoriiniForCausalLM(run.config(vocab_size)).to(device)
    return model, torch.randint(vocab_size, (run.batch_size, run.length), device=device)


def build_step(run: TrainConfig, vocab_size: int) -> Work:
    """A new model's training steps, one of them done."""
    model, ids_BL = new_model(run, vocab_size)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(ids_BL, labels=ids_BL).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step


def memory(run: TrainConfig, vocab_size: int) -> float:
    """GB of float32 weights, gradients and AdamW's state, and what a forward pass saves for the backward."""
    model, ids_BL = new_model(run, vocab_size)
    saved = saved_bytes(model, partial(model, ids_BL, labels=ids_BL))
    return (4 * 4 * sum(p.numel() for p in model.parameters()) + saved) / 1e9
