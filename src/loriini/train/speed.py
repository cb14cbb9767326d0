"""Trade-offs between memory and time."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from loriini.common.checks import CountOrZero, check_fields
from loriini.model import LoriiniForCausalLM
from loriini.model.loss import fused_loss, loss_of_rows


@dataclass(frozen=True)
class SpeedConfig:
    """Trade-offs between memory and time that leave the result unchanged, up to rounding."""

    activation_checkpointing: bool = False
    """Keep only the states between layers and recompute the rest in the backward pass: a fraction of the
    memory for about a third more computation."""
    compile: bool = False
    """Compile every layer and the loss with torch.compile; the first steps are slow."""
    collect_every: CountOrZero = 50
    """Collect garbage every this many steps, in all processes at once so that none waits for another; 0:
    leave it to Python."""

    def __post_init__(self) -> None:
        check_fields(self, "speed.")


@contextmanager
def garbage_collected(every: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call after each step: it collects young garbage every `every` steps.

    Meanwhile Python's own collector, which would stop processes one at a time, is off. 0: it stays on.
    """

    def collect(step: int) -> None:
        if every and step % every == 0:
            gc.collect(1)

    enabled = gc.isenabled()
    if every:
        gc.disable()
    try:
        yield collect
    finally:
        if enabled:
            gc.enable()


def speed_up(model: LoriiniForCausalLM, config: SpeedConfig) -> None:
    """Apply the settings to a model, in place; parameters keep their names."""
    if config.activation_checkpointing:
        # renamed between transformers 5.17 and 5.23, where the old name warns
        newer = hasattr(model, "activation_checkpointing_enable")
        (model.activation_checkpointing_enable if newer else model.gradient_checkpointing_enable)()
    if config.compile:
        compile_layers(model.model.layers)
        model.fused_loss = partial(fused_loss, of_rows=torch.compile(loss_of_rows))


def compile_layers(layers: nn.ModuleList) -> None:
    """Compile each layer of a model, in place, and drop the graphs of all models before it.

    All layers share one code object, for which torch keeps at most 8 graphs
    (`torch._dynamo.config.recompile_limit`). Beyond that it warns and runs eagerly.
    """
    # As in eager mode: else the backward pass of a router, which is float32, would be in bfloat16.
    torch._functorch.config.backward_pass_autocast = "off"
    torch.compiler.reset()
    for layer in layers:
        layer.compile()
