"""A run with another routing design at the same active size, or with another shape."""

from dataclasses import replace

from loriini.routing import DESIGNS, RoutingConfig
from loriini.train.config import ModelShape, TrainConfig

EXPERTS = 8
"""Experts of a mixture whose recipe is a dense model."""


def with_design(run: TrainConfig, design: str) -> TrainConfig:
    """`run` with a named design in place of its own; it keeps its segment length. See `with_routing`."""
    routing = replace(DESIGNS[design], segment_length=run.routing.segment_length)
    return with_routing(replace(run, name=design), routing, dense=design == "dense")


def with_routing(run: TrainConfig, routing: RoutingConfig, dense: bool = False) -> TrainConfig:
    """`run` with another routing at the same active size.

    A mixture gets as many experts as `run` has, or EXPERTS if that is a dense model; a dense model gets one.
    The FFNs that a token passes through are together as wide as in `run`, rounded to a multiple of 8, and
    every other setting is kept. The dense warm-up is dropped where the design does not admit it. A run that
    starts from a model keeps the width of that model's FFNs in any design, so its active size may differ.
    """
    before = run.model.num_experts
    experts = 1 if dense else before if before > 1 else EXPERTS
    width = run.model.intermediate_size
    ratio = 1 if run.init else run.routing.active_ffns(before) / routing.active_ffns(experts)
    share = run.warmup.dense_share if experts > 1 and routing.preserves_dense else 0.0
    return replace(
        run,
        routing=routing,
        model=replace(
            run.model,
            num_experts=experts,
            intermediate_size=width if ratio == 1 else multiple_of_8(width * ratio),
        ),
        warmup=replace(run.warmup, dense_share=share),
    )


def scaled_shape(shape: ModelShape, width: int, layers: int, heads: int) -> ModelShape:
    """An architecture of another width and depth, with FFNs and low ranks scaled by the width."""
    ratio = width / shape.hidden_size
    return replace(
        shape,
        hidden_size=width,
        intermediate_size=multiple_of_8(ratio * shape.intermediate_size),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        low_rank=shape.low_rank and multiple_of_8(ratio * shape.low_rank),
    )


def multiple_of_8(number: float) -> int:
    """The nearest multiple of 8, at least 8: grouped products need rows of a multiple of 16 bytes."""
    return max(8, 8 * round(number / 8))
