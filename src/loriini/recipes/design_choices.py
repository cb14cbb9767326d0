"""The models of "Towards an empirical understanding of MoE design choices": GPT-2-small and its mixtures.

Routers are the paper's one-layer ones, with which the totals of its table 1 come out; of the two-layer ones,
which it finds to make no difference (appendix A.2, figure 1), there is one. Its tables were made without a
load-balancing loss, its figures 3 and 4 with one.
"""

from collections.abc import Iterator
from dataclasses import replace

from loriini.routing import DESIGNS, RoutingConfig
from loriini.train.optimizer import OptimizerConfig
from loriini.train.run import ModelShape, Run
from loriini.train.upcycle import WarmupConfig

STEPS, LENGTH, BATCH_TOKENS = 6000, 1024, 1 << 20
WARMUP_STEPS = 2000
"""nanoGPT's default, which the paper did not change."""


def gpt2_small() -> Run:
    """GPT-2-small, trained as in appendix A.1; the baseline of FFN width 1x."""
    return Run(
        name="gpt2-small",
        routing=DESIGNS["dense"],
        model=ModelShape(768, 3072, 12, 12, tie_word_embeddings=True, block="gpt2", dropout=0.2),
        optimizer=OptimizerConfig(learning_rate=9.6e-4, weight_decay=0.5, warmup=WARMUP_STEPS / STEPS),
        warmup=WarmupConfig(dense_share=0.0),
        steps=STEPS,
        batch_size=BATCH_TOKENS // LENGTH,
        micro_batch_size=8,
        length=LENGTH,
    )


def widened(times: int) -> Run:
    """The dense baseline whose FFN is so many times as wide."""
    dense = gpt2_small()
    wide = replace(dense.model, intermediate_size=times * dense.model.intermediate_size)
    return replace(dense, name=f"{dense.name}-{times}x", model=wide)


def mixture(name: str, routing: RoutingConfig, experts: int = 4) -> Run:
    """GPT-2-small with every FFN a mixture of so many."""
    dense = gpt2_small()
    return replace(
        dense,
        name=f"{dense.name}-{name}",
        routing=routing,
        model=replace(dense.model, num_experts=experts),
    )


def routed(unit: str, top_k: int) -> RoutingConfig:
    """A row of table 1: `unit` token, sequence or global (one router for all layers, by sequence).

    Gates are Switch's for one expert (equation 1), Mixtral's for several, with the softmax twice for
    sequences (equation 2).
    """
    one = top_k == 1
    name = ("switch" if one else "mixtral") if unit == "token" else f"{unit}-top{1 if one else 2}"
    design = DESIGNS[name]
    return replace(design, scorer="linear", top_k=top_k, load_balance=0.0)


def runs() -> Iterator[Run]:
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
