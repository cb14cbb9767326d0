"""The sizes of a ladder: a run at other widths."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from loriini.common.errors import InputError
from loriini.recipes.redesign import scaled_shape
from loriini.train.config import TrainConfig


def at_width(run: TrainConfig, width: int) -> TrainConfig:
    """`run` at another width, with the same depth and steps.

    Attention heads keep their width where a whole number of them fits, else their number.
    """
    shape, ratio = run.model, Fraction(width, run.model.hidden_size)
    heads, groups = ratio * shape.num_attention_heads, ratio * (shape.num_key_value_heads or 0)
    if heads.denominator == groups.denominator == 1:
        scaled = scaled_shape(shape, width, shape.num_hidden_layers, int(heads))
        return replace(run, model=replace(scaled, num_key_value_heads=int(groups) or None))
    scaled = scaled_shape(shape, width, shape.num_hidden_layers, shape.num_attention_heads)
    return replace(run, model=replace(scaled, head_dim=shape.head_dim and int(shape.head_dim * ratio)))


def check_widths(run: TrainConfig, widths: Sequence[int], grid: Sequence[str]) -> None:
    """InputError for a ladder of a run that has one size, and for a grid that varies the width too."""
    if widths and "model.hidden_size" in grid:
        raise InputError("--grid model.hidden_size: the sizes of --ladder are widths; leave one of them out")
    if widths and run.init:
        raise InputError(f"--ladder: {run.name} starts from a model, which has one size; leave it out")
