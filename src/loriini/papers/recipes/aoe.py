"""The models of "Autonomy-of-Experts Models": table 2's twelve configurations, table 3, and the 4 B pair.

`aux` in a name stands for the load-balancing loss; the number behind `aoe` is the low rank r. The context
length is not stated in the paper.
"""

from collections.abc import Iterator
from dataclasses import replace

from loriini.routing import DESIGNS
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.upcycle import WarmupConfig

LENGTH, TOKENS_PER_STEP = 2048, 1 << 22
STEPS = 100_000_000_000 // TOKENS_PER_STEP
FINAL_RATE = 1.28e-5
BASELINE_RANK = 256
"""The low rank r of the factorised and the large-router baselines."""


def optimizer(learning_rate: float) -> OptimizerConfig:
    """4,800 steps of linear warm-up, then a cosine to 1.28e-5."""
    return OptimizerConfig(learning_rate, warmup=4800 / STEPS, final_rate=FINAL_RATE / learning_rate)


def moe() -> TrainConfig:
    """Configuration 1: the traditional mixture, two of eight experts, 732 M parameters."""
    return TrainConfig(
        name="732m-moe",
        routing=replace(DESIGNS["mixtral"], load_balance=0.0),
        model=ModelShape(768, 3072, 12, 12, num_experts=8),
        optimizer=optimizer(2e-4),
        warmup=WarmupConfig(dense_share=0.0),
        steps=STEPS,
        batch_size=TOKENS_PER_STEP // LENGTH,
        micro_batch_size=8,
        length=LENGTH,
    )


def with_aux(run: TrainConfig) -> TrainConfig:
    """A run with the load-balancing loss."""
    return replace(run, name=f"{run.name}-aux", routing=replace(run.routing, load_balance=0.01))


def factorized() -> TrainConfig:
    """Configuration 3: a router, and experts whose W_g is factorised as that of autonomous experts."""
    aux = with_aux(moe())
    return replace(aux, name=f"{aux.name}-factorized", model=replace(aux.model, low_rank=BASELINE_RANK))


def large_router() -> TrainConfig:
    """Configuration 4: a router of E·r·d parameters, as many as autonomous experts select by."""
    aux = with_aux(moe())
    d, experts = aux.model.hidden_size, aux.model.num_experts
    width = round(experts * BASELINE_RANK * d / (d + experts))
    routing = replace(aux.routing, scorer="mlp", scorer_width=width)
    return replace(aux, name=f"{aux.name}-large-router", routing=routing)


def autonomous(low_rank: int) -> TrainConfig:
    """Configurations 5, 7, 9 and 11: no router, and W_g factorised through `low_rank` dimensions."""
    routed = moe()
    return replace(
        routed,
        name=f"732m-aoe-{low_rank}",
        routing=replace(DESIGNS["aoe"], load_balance=0.0),
        model=replace(routed.model, low_rank=low_rank),
    )


def selecting(run: TrainConfig, design: str, name: str) -> TrainConfig:
    """A model of table 3: the same with another selection of experts."""
    return replace(run, name=f"{run.name}-{name}", routing=DESIGNS[design])


def moe_4b() -> TrainConfig:
    """The traditional mixture of 4 B parameters (section 4.2), with the load-balancing loss."""
    small = with_aux(moe())
    shape = ModelShape(1280, 5120, 24, 20, num_experts=8)
    return replace(small, name="4b-moe", model=shape, optimizer=optimizer(3.2e-4))


def aoe_4b() -> TrainConfig:
    """The 4 B model of autonomous experts; our width is 6472: the paper's 6470 is not a multiple of 8."""
    routed = moe_4b()
    return replace(routed, name="4b-aoe", routing=DESIGNS["aoe"], model=replace(routed.model, low_rank=400))


def aoe_recipes() -> Iterator[TrainConfig]:
    """Table 2 in the order of its configurations, table 3, and section 4.2."""
    yield from (moe(), with_aux(moe()), factorized(), large_router())
    for low_rank in (64, 128, 256, 512):
        yield from (autonomous(low_rank), with_aux(autonomous(low_rank)))
    for run, design in ((moe(), "token-top-p"), (autonomous(256), "aoe-top-p")):
        top_p = selecting(run, design, "top-p")
        yield replace(top_p, routing=replace(top_p.routing, load_balance=0.01))  # both, to compare alike
    yield selecting(moe(), "token-ec2", "ec")
    yield selecting(autonomous(256), "aoe-ec", "ec")
    yield from (moe_4b(), aoe_4b())
