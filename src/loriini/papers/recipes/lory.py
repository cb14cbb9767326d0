"""The models of Lory's tables 4 and 5: 0.3 B, 1.5 B and 7 B, dense and with experts.

The widths of the FFNs follow LLaMA's rule. Weight decay, clipping and the final learning rate are not stated
in the paper; `loriini.papers` lists what is. The 1.5 B and 7 B recipes recompute activations, so that they
fit on the paper's 64 GPUs with 80 GiB each.
"""

from collections.abc import Iterator
from dataclasses import replace

from loriini.routing import DESIGNS
from loriini.train.config import AUTO, ModelShape, TrainConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.speed import SpeedConfig

LENGTH, TOKENS_PER_STEP = 4096, 1 << 20


def lory_0_3b_dense() -> TrainConfig:
    """The dense model of 0.3 B parameters: 150 B tokens of similar documents (section 4.1)."""
    return TrainConfig(
        name="0.3b-dense",
        routing=DESIGNS["dense"],
        model=ModelShape(1024, 2816, 24, 16),
        optimizer=OptimizerConfig(learning_rate=2e-4),
        steps=150_000_000_000 // TOKENS_PER_STEP,
        batch_size=TOKENS_PER_STEP // LENGTH,
        micro_batch_size=AUTO,
        length=LENGTH,
        order="similar",
    )


def lory_1_5b_dense() -> TrainConfig:
    """The dense model of 1.5 B parameters."""
    return replace(
        lory_0_3b_dense(),
        name="1.5b-dense",
        model=ModelShape(1536, 4096, 48, 24),
        speed=SpeedConfig(activation_checkpointing=True),
    )


def lory_7b_dense() -> TrainConfig:
    """The dense model of 7 B parameters: 200 B tokens of documents in random order (appendix E)."""
    return replace(
        lory_1_5b_dense(),
        name="7b-dense",
        model=ModelShape(4096, 11008, 32, 32),
        steps=200_000_000_000 // TOKENS_PER_STEP,
        order="random",
    )


def lory(dense: TrainConfig, experts: int) -> TrainConfig:
    """The mixture of `experts` experts with the active size of `dense`, which starts with a dense warm-up."""
    return replace(
        dense,
        name=f"{dense.name.removesuffix('-dense')}-lory-{experts}e",
        routing=DESIGNS["lory"],
        model=replace(dense.model, num_experts=experts),
    )


def lory_recipes() -> Iterator[TrainConfig]:
    """Every model of tables 4 and 5."""
    small, medium, large = lory_0_3b_dense(), lory_1_5b_dense(), lory_7b_dense()
    for dense, counts in ((small, (8, 16, 32)), (medium, (8, 16, 32)), (large, (4,))):
        yield dense
        yield from (lory(dense, experts) for experts in counts)
