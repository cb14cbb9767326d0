"""The models of "Towards an empirical understanding of MoE design choices": GPT-2-small and its mixtures.

Routers have one layer, with which the totals of the paper's table 1 come out; one recipe has the two-layer
router of appendix A.2 (figure 1). Figures 3 and 4 were made with the load-balancing loss. Whether the tables
were is not stated (appendix A.1 calls it optional); we assume that they were not. Warm-up, betas and clipping
are nanoGPT's defaults, which the paper says it did not change.
"""

from collections.abc import Iterator
from dataclasses import replace

from loriini.routing import DESIGNS, RoutingConfig
from loriini.train.config import ModelShape, TrainConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.upcycle import WarmupConfig

STEPS, LENGTH, TOKENS_PER_STEP = 6000, 1024, 1 << 20
WARMUP_STEPS = 2000


def gpt2_small() -> TrainConfig:
    """GPT-2-small, trained as in appendix A.1; the baseline of FFN width 1x."""
    return TrainConfig(
        name="gpt2-small",
        routing=DESIGNS["dense"],
        model=ModelShape(768, 3072, 12, 12, tie_word_embeddings=True, block="gpt2", dropout=0.2),
        optimizer=OptimizerConfig(learning_rate=9.6e-4, weight_decay=0.5, warmup=WARMUP_STEPS / STEPS),
        warmup=WarmupConfig(dense_share=0.0),
        steps=STEPS,
        batch_size=TOKENS_PER_STEP // LENGTH,
        micro_batch_size=8,
        length=LENGTH,
    )


def widened(times: int) -> TrainConfig:
    """The dense baseline whose FFN is `times` as wide."""
    dense = gpt2_small()
    wide = replace(dense.model, intermediate_size=times * dense.model.intermediate_size)
    return replace(dense, name=f"{dense.name}-{times}x", model=wide)


def mixture(name: str, routing: RoutingConfig, experts: int = 4) -> TrainConfig:
    """GPT-2-small with every FFN a mixture of `experts` FFNs."""
    dense = gpt2_small()
    return replace(
        dense,
        name=f"{dense.name}-{name}",
        routing=routing,
        model=replace(dense.model, num_experts=experts),
    )


def routed(unit: str, top_k: int) -> RoutingConfig:
    """A row of table 1; `unit` is token, sequence, or global (one router for all layers, by sequence).

    Gates are Switch's for one expert (equation 1) and Mixtral's for several, with the softmax applied twice
    for sequences (equation 2).
    """
    one = top_k == 1
    name = ("switch" if one else "mixtral") if unit == "token" else f"{unit}-top{1 if one else 2}"
    design = DESIGNS[name]
    return replace(design, scorer="linear", top_k=top_k, load_balance=0.0)


def design_choices_recipes() -> Iterator[TrainConfig]:
    """Every row of the paper's tables and figures, each once."""
    yield from (gpt2_small(), widened(2), widened(4))
    for unit in ("token", "sequence", "global"):  # table 1
        yield from (mixture(f"{unit}-top{k}", routed(unit, k)) for k in (1, 2))
    for unit in ("token", "sequence"):
        top2 = routed(unit, 2)
        yield mixture(f"{unit}-top3", routed(unit, 3))  # table 2
        yield from (mixture(f"{unit}-top2-{experts}e", top2, experts) for experts in (2, 6))
        yield mixture(f"{unit}-top2-frozen", replace(top2, scorer="frozen"))  # table 3
        yield mixture(f"{unit}-top2-random", replace(top2, scorer="random"))
    yield mixture("language", replace(DESIGNS["label"], scope="global"))
    top2 = routed("sequence", 2)
    yield mixture("sequence-top2-mlp", replace(top2, scorer="mlp"))  # figure 1
    for k in (2, 3):  # figures 3 and 4
        yield mixture(f"sequence-top{k}-balanced", replace(routed("sequence", k), load_balance=0.01))
