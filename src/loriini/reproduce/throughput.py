"""Training steps of several runs' models, timed in turn on this machine, and the memory of each."""

from collections.abc import Mapping
from dataclasses import replace

from loriini.bench.memory import step_bytes
from loriini.bench.models import step_case
from loriini.bench.timing import in_rounds
from loriini.train.run import Run


def step_rates(runs: Mapping[str, Run], vocab_size: int, rounds: int) -> dict[str, list[float]]:
    """Tokens per second of each run's training step, for each of `rounds` rounds in which all take a turn."""
    cases = [step_case(name, measurable(run, vocab_size)) for name, run in runs.items()]
    by_run = zip(*in_rounds(cases, rounds), strict=True)
    return {
        name: [run.batch_size * run.length / seconds for seconds in of_run]
        for (name, run), of_run in zip(runs.items(), by_run, strict=True)
    }


def memory(run: Run, vocab_size: int) -> float:
    """GB of weights, gradients, optimizer state, and what a forward pass saves for the backward pass."""
    return step_bytes(measurable(run, vocab_size))["total"] / 1e9


def measurable(run: Run, vocab_size: int) -> Run:
    """The run with this vocabulary, as a mixture from its first step."""
    return replace(
        run, model=replace(run.model, vocab_size=vocab_size), warmup=replace(run.warmup, dense_share=0)
    )
