"""Training steps and forward passes, timed in turn on this machine, and the memory of training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from loriini.bench.models import build_steps, on_device, run_config, step_bytes
from loriini.bench.timing import Case, Work, in_rounds
from loriini.common.progress import progress
from loriini.evaluate.settings import RouterFree
from loriini.papers.published.items import PaperRun
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


def timed_run(paper: PaperRun, scale: Scale) -> TrainConfig:
    """A paper's run in the size that is timed at a scale."""
    return scaled_run(paper, replace(TIMED[scale.name], segment_length=256))


def conditions(papers: Sequence[PaperRun], scale: Scale) -> Iterator[str]:
    """What rates depend on: the sizes that are timed at a scale, and the session."""
    runs = [timed_run(paper, scale) for paper in papers]
    run = max(runs, key=lambda run: run.model.num_experts)
    shape, segmented = run.model, run.routing.segmented
    segments = run.batch_size * run.length // run.routing.segment_length
    merged = f", {segments} segments: with more of them merging takes a smaller share" if segmented else ""
    yield (
        f"timed are models of width {shape.hidden_size} with {shape.num_hidden_layers} layers, in steps of "
        f"one micro-batch of {run.batch_size} × {run.length:,} tokens{merged}"
    )
    yield "intervals are over rounds of one session, and other sessions may lie outside them"


def step_rates(runs: Mapping[str, TrainConfig], vocab_size: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of each run's training step, for each of `rounds` rounds in which all take a turn."""
    cases = [Case(name, 1, partial(build_steps, measurable(run, vocab_size))) for name, run in runs.items()]
    by_run = zip(*reported_rounds("steps", cases, rounds), strict=True)
    return {
        name: [run.batch_size * run.length / seconds for seconds in of_run]
        for (name, run), of_run in zip(runs.items(), by_run, strict=True)
    }


def forward_seconds(
    run: TrainConfig, vocab_size: int, how: Mapping[str, str], rounds: int
) -> dict[str, list[float]]:
    """Seconds of a batch's forward pass in evaluation, for each of `rounds` rounds in which all take a turn.

    `how` names NODE:NORM by which experts are ranked instead of by their routers, or nothing to keep these.
    """
    run = measurable(run, vocab_size)
    cases = [Case(name, run.model.num_experts, partial(build_forward, run, by)) for name, by in how.items()]
    by_case = zip(*reported_rounds("forward passes", cases, rounds), strict=True)
    return dict(zip(how, map(list, by_case), strict=True))


def reported_rounds(name: str, cases: Sequence[Case], rounds: int) -> Iterator[list[float]]:
    """The rounds of `in_rounds`, with progress."""
    with progress(name, rounds) as advance:
        for seconds in in_rounds(cases, rounds):
            advance()
            yield seconds


def build_forward(run: TrainConfig, how: str) -> Work:
    """A new model's forward pass over random tokens, after one that warms up."""
    torch.manual_seed(0)
    config = run_config(run)
    model = on_device(config).eval()
    if how:
        RouterFree.parse(how).apply(model)
    ids_BL = torch.randint(config.vocab_size, (run.batch_size, run.length), device=model.device)
    forward = torch.no_grad()(partial(model, ids_BL))
    forward()
    return forward


def memory(run: TrainConfig, vocab_size: int) -> float:
    """GB of weights, gradients, optimizer state, and what a forward pass saves for the backward pass."""
    return step_bytes(measurable(run, vocab_size))["total"] / 1e9


def measurable(run: TrainConfig, vocab_size: int) -> TrainConfig:
    """The run with this vocabulary, as a mixture from its first step."""
    return replace(
        run, model=replace(run.model, vocab_size=vocab_size), warmup=replace(run.warmup, dense_share=0)
    )
