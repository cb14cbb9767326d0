"""Training steps, timed in turn on this machine."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from loriini.bench.models import build_steps
from loriini.bench.timing import Case, in_rounds
from loriini.common.progress import progress
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
    return {
        row: replace(
            run,
            model=replace(run.model, vocab_size=scale.vocab_size),
            warmup=replace(run.warmup, dense_share=0),
        )
        for row, run in runs.items()
    }


def step_rates(runs: Mapping[str, TrainConfig], scale: Scale) -> dict[str, list[float]]:
    """Tokens per second of each run's training step by round."""
    cases = [Case(row, run.model.num_experts, partial(build_steps, run)) for row, run in runs.items()]
    rates: dict[str, list[float]] = {row: [] for row in runs}
    rounds = ROUNDS[scale.name]
    with progress("timing", rounds) as advance:
        for seconds in in_rounds(cases, rounds):
            for (row, run), each in zip(runs.items(), seconds, strict=True):
                rates[row].append(run.batch_size * run.length / each)
            advance()
    return rates
