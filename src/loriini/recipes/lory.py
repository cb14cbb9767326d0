"""The models of Lory's table 1: 0.3 B, 1.5 B and 7 B, dense and with experts."""

from collections.abc import Iterator
from dataclasses import replace

from loriini.routing import DESIGNS
from loriini.train.optimizer import OptimizerConfig
from loriini.train.run import ModelShape, Run

TOKENS, BATCH_TOKENS = 150_000_000_000, 1 << 20


def lory_dense(name: str, shape: ModelShape) -> Run:
    """A dense baseline of Lory's table 1, trained as there: 150 B tokens, 1 M a step, context 4096."""
    length = 4096
    return Run(
        name=name,
        routing=DESIGNS["dense"],
        model=shape,
        optimizer=OptimizerConfig(learning_rate=2e-4),
        steps=TOKENS // BATCH_TOKENS,
        batch_size=BATCH_TOKENS // length,
        micro_batch_size=4,
        length=length,
    )


def lory(dense: Run, experts: int) -> Run:
    """The mixture of `experts` experts beside a dense baseline, by the paper's recipe: plain copies."""
    return replace(
        dense,
        name=f"{dense.name.removesuffix('-dense')}-lory-{experts}e",
        routing=DESIGNS["lory"],
        model=replace(dense.model, num_experts=experts),
    )


def lory_0_3b_dense() -> Run:
    """0.3 B parameters."""
    return lory_dense("0.3b-dense", ModelShape(1024, 2816, 24, 16))


def lory_1_5b_dense() -> Run:
    """1.5 B parameters."""
    return lory_dense("1.5b-dense", ModelShape(1536, 4096, 48, 24))


def lory_7b_dense() -> Run:
    """7 B parameters."""
    return lory_dense("7b-dense", ModelShape(4096, 11008, 32, 32))


def runs() -> Iterator[Run]:
    """Every model of the table."""
    for dense, counts in (
        (lory_0_3b_dense(), (8, 16, 32)),
        (lory_1_5b_dense(), (8, 16, 32)),
        (lory_7b_dense(), (4,)),
    ):
        yield dense
        yield from (lory(dense, experts) for experts in counts)
