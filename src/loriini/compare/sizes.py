"""The sizes of a ladder: a run, and the same at half the width, a quarter, and so on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from loriini.common.checks import check_choice
from loriini.common.errors import InputError
from loriini.recipes.redesign import scaled_shape
from loriini.train.config import ModelShape, TrainConfig

Resize = Callable[[TrainConfig], TrainConfig]
"""A run at one of the sizes."""
LadderTokens = Literal["proportional", "equal"]
SIZES = 4
MULTIPLE = 8
"""Every width is a multiple of it, as the products of grouped matrices need."""
LEAST_STEPS = 10


@dataclass(frozen=True)
class Ladder:
    """Sizes that end with a run's own, each twice as wide as the one before. InputError for a wrong number.

    Attributes:
        sizes: how many.
        tokens: every size is trained as the run is (`equal`), or a smaller one with fewer steps, in
            proportion to the square of its width, and so to the parameters of its layers (`proportional`).
    """

    sizes: int = SIZES
    tokens: LadderTokens = "proportional"

    def __post_init__(self) -> None:
        if self.sizes < 2:
            raise InputError(f"--ladder {self.sizes}: give 2 sizes or more")
        check_choice("--ladder-tokens", self.tokens, get_args(LadderTokens))

    def resizes(self) -> list[Resize]:
        """A function for each size, the smallest first, that resizes a run to it."""
        return [partial(self.narrowed, times=times) for times in reversed(range(self.sizes))]

    def narrowed(self, run: TrainConfig, times: int) -> TrainConfig:
        """`run` with its width halved `times` times. InputError for a smallest size that is not possible."""
        width, smallest = run.model.hidden_size, MULTIPLE << (self.sizes - 1)
        if width % smallest:
            raise InputError(
                f"--ladder {self.sizes}: a width of {width} cannot be halved {self.sizes - 1} times into "
                f"multiples of {MULTIPLE}; give --model.hidden_size {smallest * (width // smallest + 1)}, "
                "a wider --recipe or fewer sizes"
            )
        per_size = 4 if self.tokens == "proportional" else 1
        if run.steps < (least := LEAST_STEPS * per_size ** (self.sizes - 1)):
            raise InputError(
                f"--ladder {self.sizes}: of {run.steps} steps the smallest size gets fewer than "
                f"{LEAST_STEPS}; give --steps {least}, fewer sizes or --ladder-tokens equal"
            )
        shape = run.model
        for _ in range(times):
            shape = half_width(shape)
        return replace(run, model=shape, steps=round(run.steps / per_size**times))


def half_width(shape: ModelShape) -> ModelShape:
    """An architecture of half the width and equal depth.

    It has half the attention heads, of equal width, where their number is even; else heads half as wide.
    """
    groups = shape.num_key_value_heads
    halve = shape.num_attention_heads % 2 == 0 and (groups or 0) % 2 == 0
    heads = shape.num_attention_heads // 2 if halve else shape.num_attention_heads
    return replace(
        scaled_shape(shape, shape.hidden_size // 2, shape.num_hidden_layers, heads),
        num_key_value_heads=groups and (groups // 2 if halve else groups),
        head_dim=shape.head_dim and (shape.head_dim if halve else shape.head_dim // 2),
    )
