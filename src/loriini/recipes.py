"""Named runs: functions that return a whole `Run`; a variant calls its parent and changes one field."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from loriini.routing import DESIGNS
from loriini.train.optimizer import OptimizerConfig
from loriini.train.run import ModelShape, Run
from loriini.train.upcycle import WarmupConfig

LORY_TOKENS, LORY_BATCH_TOKENS = 150_000_000_000, 1 << 20


def tiny_dense() -> Run:
    """A dense model that trains in seconds on a CPU, on text of the Python standard library."""
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


@dataclass(frozen=True)
class Size:
    """A size of the quickstart's models: its shape, vocabulary, and how long it trains."""

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
    """One of the two models of `loriini quickstart`; `steps` 0 takes the size's own."""
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


def lory_dense(name: str, shape: ModelShape) -> Run:
    """A dense baseline of Lory's table 1, trained as there: 150 B tokens, 1 M a step, context 4096."""
    length = 4096
    return Run(
        name=name,
        routing=DESIGNS["dense"],
        model=shape,
        optimizer=OptimizerConfig(learning_rate=2e-4),
        steps=LORY_TOKENS // LORY_BATCH_TOKENS,
        batch_size=LORY_BATCH_TOKENS // length,
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


def _recipes() -> dict[str, Callable[[], Run]]:
    named = [tiny_dense, tiny_lory, tiny_mixtral, tiny_aoe, lory_0_3b_dense, lory_1_5b_dense, lory_7b_dense]
    recipes: dict[str, Callable[[], Run]] = {make().name: make for make in named}
    for make, counts in (
        (lory_0_3b_dense, (8, 16, 32)),
        (lory_1_5b_dense, (8, 16, 32)),
        (lory_7b_dense, (4,)),
    ):
        for experts in counts:
            mixture = lory(make(), experts)
            recipes[mixture.name] = lambda mixture=mixture: mixture  # type: ignore[misc]
    return recipes


RECIPES = _recipes()


def describe(name: str) -> dict[str, Any]:
    """A recipe's name and parameters, and the published ones in the units they were printed in."""
    from loriini.published import PARAMETERS

    total, active = RECIPES[name]().config(32_000, 2).parameters()
    published = PARAMETERS.get(name, {})
    return {
        "name": name,
        "parameters_total": total,
        "parameters_active": active,
        "published_total": published.get("total"),
        "published_active": published.get("active"),
    }
