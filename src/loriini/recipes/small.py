"""Runs for a laptop: the tiny recipes, and the models of the quickstart."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from loriini.recipes.redesign import with_design
from loriini.routing import DESIGNS
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.optimizer import OptimizerConfig


def muon(width: int) -> OptimizerConfig:
    """Muon at the best rate of widths 64 to 256: equal up to 128, then as 1/√width (docs/findings.md)."""
    return OptimizerConfig(name="muon", learning_rate=8e-3 * min(1.0, (128 / width) ** 0.5))


def tiny_recipes() -> Iterator[TrainConfig]:
    """The recipes that need no corpus: they train on the Python standard library's text.

    `tiny-lory` and `tiny-mixtral` (top-2) have the active size of `tiny-dense`; `tiny-aoe`, autonomous
    experts, has as many parameters as `tiny-mixtral`.
    """
    dense = TrainConfig(
        name="tiny-dense",
        routing=DESIGNS["dense"],
        model=ModelShape(64, 176, 2, 2),
        optimizer=muon(64),
        steps=60,
        batch_size=8,
        length=256,
    )
    lory = replace(
        dense,
        name="tiny-lory",
        routing=replace(DESIGNS["lory"], segment_length=64),
        model=replace(dense.model, num_experts=4),
    )
    yield from (dense, lory)
    yield from (replace(with_design(lory, name), name=f"tiny-{name}") for name in ("mixtral", "aoe"))


@dataclass(frozen=True)
class Size:
    """A size of the quickstart's models: shape, vocabulary and length of training."""

    shape: ModelShape
    vocab_size: int
    steps: int
    batch_size: int


SIZES = {
    "small": Size(ModelShape(64, 176, 4, 2), 2048, 800, 8),
    "medium": Size(ModelShape(128, 352, 6, 4), 4096, 3000, 16),
    "large": Size(ModelShape(256, 704, 8, 8), 8192, 10_000, 32),
}


def quickstart_run(design: str, size: str, steps: int | None = None, seed: int = 0) -> TrainConfig:
    """The run of one model of `loriini quickstart`; `steps` None: the size's number of steps."""
    chosen = SIZES[size]
    dense = TrainConfig(
        name="dense",
        routing=replace(DESIGNS["dense"], segment_length=128),
        model=chosen.shape,
        optimizer=muon(chosen.shape.hidden_size),
        steps=chosen.steps if steps is None else steps,
        batch_size=chosen.batch_size,
        length=512,
        seed=seed,
    )
    return with_design(dense, design)
