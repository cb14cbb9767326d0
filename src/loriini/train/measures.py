"""What is measured of the model every so many steps: perplexity of held-out text, samples of its own.

The loop knows neither: it is given `Measure`s and writes down what they return.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loriini.fields import Count, CountOrZero, check_fields
from loriini.model import LoriiniForCausalLM
from loriini.train.metrics import rewind


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation during training: perplexity of held-out documents, and samples."""

    heldout: tuple[Path, ...] = ()
    """Held-out documents to evaluate on; none: no evaluation."""
    every: Count = 500
    """Steps between evaluations; there is one after the last step, too."""
    instances: Count = 64
    """Held-out instances of each domain, at most."""
    skip: CountOrZero | None = None
    """Predictions left out at the start of each instance; none: the model's own segment 1. Runs that are
    compared need the same value."""
    sample_every: CountOrZero = 0
    """Steps between samples; 0: no samples."""
    prompt: str = ""
    """Text that a sample continues."""
    sample_tokens: Count = 64
    """Tokens of a sample."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluate.")


@dataclass(frozen=True)
class Measure:
    """Something measured every `every` steps and after the last; an object each time, a line of `file`.

    The entry `best_by` of the object, the lower the better, says which checkpoint is the best.
    """

    file: str
    every: int
    of: Callable[[LoriiniForCausalLM], dict[str, Any]]
    best_by: str | None = None

    def due(self, step: int, steps: int) -> bool:
        """Whether it is time."""
        return step % self.every == 0 or step == steps


def measure_all(
    measures: Sequence[Measure], model: LoriiniForCausalLM, step: int, steps: int, out: Path | None
) -> tuple[dict[str, Any], float | None]:
    """Take the measures that are due after a step, and add each to its file in `out`.

    Returns all entries together, and the one by which the best checkpoint is chosen. Training goes on as if
    nothing had been measured. Every process of a run must call it; those without an `out` write nothing.
    """
    entries: dict[str, Any] = {}
    best = None
    for measure in measures:
        if not measure.due(step, steps):
            continue
        with undisturbed(model):
            measured = measure.of(model)
        entries |= measured
        best = measured[measure.best_by] if measure.best_by else best
        if out is not None:
            with open(out / measure.file, "a") as file:
                file.write(json.dumps({"step": step, **measured}) + "\n")
    return entries, best


@contextmanager
def undisturbed(model: LoriiniForCausalLM) -> Iterator[None]:
    """While inside, the model may be evaluated and random numbers drawn; after it all is as before."""
    training = model.training
    devices = [torch.cuda.current_device()] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield
    model.train(training)


def rewind_all(measures: Sequence[Measure], step: int, out: Path) -> None:
    """Drop what was measured after `step`, which will be measured again."""
    for measure in measures:
        if (out / measure.file).exists():
            rewind(out / measure.file, step)
