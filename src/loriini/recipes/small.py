"""Runs for a laptop: the tiny recipes, and the models of the quickstart."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loriini.routing import DESIGNS
from loriini.train.optimizer import OptimizerConfig
from loriini.train.run import ModelShape, Run
from loriini.train.upcycle import WarmupConfig


def tiny_dense() -> Run:
    """A dense model that trains in seconds on a CPU."""
    return Run(
        name="tiny-dense",
        routing=DESIGNS["dense"],
        model=ModelShape(64, 176, 2, 2),
        optimizer=OptimizerConfig(learning_rate=8e-3),
        steps=60,
        batch_size=8,
        length=256,
    )


def tiny_lory() -> Run:
    """The Lory mixture beside `tiny-dense`."""
    dense = tiny_dense()
    return replace(
        dense,
        name="tiny-lory",
        routing=replace(DESIGNS["lory"], segment_length=64),
        model=replace(dense.model, num_experts=4),
    )


def tiny_mixtral() -> Run:
    """The top-2 mixture beside `tiny-dense`."""
    return replace(
        tiny_lory(),
        name="tiny-mixtral",
        routing=DESIGNS["mixtral"],
        warmup=WarmupConfig(dense_share=0.0),
    )


def tiny_aoe() -> Run:
    """Autonomous experts beside `tiny-mixtral`, of equal parameters."""
    return replace(tiny_mixtral(), name="tiny-aoe", routing=DESIGNS["aoe"])


def tiny_recipes() -> Iterator[Run]:
    """The recipes that need no corpus: they train on the Python standard library's text."""
    yield from (tiny_dense(), tiny_lory(), tiny_mixtral(), tiny_aoe())


@dataclass(frozen=True)
class Size:
    """A size of the quickstart's models: shape, vocabulary and length of training."""

    shape: ModelShape
    vocab_size: int
    steps: int
    batch_size: int


SIZES = {
    "small": Size(ModelShape(64, 176, 4, 2), 2048, 2000, 8),
    "medium": Size(ModelShape(128, 352, 6, 4), 4096, 3000, 16),
    "large": Size(ModelShape(256, 704, 8, 8), 8192, 10_000, 32),
}


def quickstart_run(design: str, size: str, steps: int, seed: int) -> Run:
    """One of the two models of `loriini quickstart`; with `steps` 0 as many as the size says."""
    chosen = SIZES[size]
    routing = DESIGNS[design]
    experts = 1 if design == "dense" else 8
    copied = experts > 1 and routing.preserves_dense
    return Run(
        name=design,
        routing=replace(routing, segment_length=128),
        model=replace(chosen.shape, num_experts=experts),
        optimizer=OptimizerConfig(learning_rate=4e-3),
        warmup=WarmupConfig(dense_share=0.05 if copied else 0.0),
        steps=steps or chosen.steps,
        batch_size=chosen.batch_size,
        length=512,
        seed=seed,
    )
