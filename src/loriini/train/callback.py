"""What Loriini's loop does between steps, for transformers' Trainer and its subclasses."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback

from loriini.model import LoriiniForCausalLM
from loriini.model.outputs import DecoderOutput
from loriini.parallel.mesh import group_size
from loriini.routing import stats
from loriini.train.balance import update_balance_bias


class RoutingCallback(TrainerCallback):
    """Draws random routers before every optimizer step and moves the biases of loss-free balancing after it.

    A bias follows the choices in all micro-batches of all processes. Models without either are left alone.
    Raises ValueError when training starts on a model that holds no `LoriiniForCausalLM`.
    """

    def __init__(self) -> None:
        self._choices: list[Tensor] = []
        self._hook: RemovableHandle | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **kwargs: Any) -> None:
        """Count choices where biases follow them; start router seeds from the trainer's seed."""
        self._stop_counting()
        decoder = loriini_model(model).model
        if decoder.router_seed is not None and decoder.router_seed < 1 << 32:  # no training drew before
            decoder.set_router_seed(args.seed)
        if decoder.config.design.balance_bias:
            self._hook = decoder.register_forward_hook(self._count)

    def on_step_begin(self, args: Any, state: Any, control: Any, *, model: nn.Module, **kwargs: Any) -> None:
        """Forget the choices of the last step, and redraw random routers."""
        self._choices.clear()
        loriini_model(model).model.begin_step()

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, **kwargs: Any
    ) -> None:
        """Move the biases."""
        if self._choices:
            choices_LE = torch.stack(self._choices).sum(0)
            if group_size() > 1:
                distributed.all_reduce(choices_LE)
            update_balance_bias(loriini_model(model), choices_LE)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop counting."""
        self._stop_counting()

    def _count(self, model: nn.Module, inputs: Any, output: DecoderOutput) -> None:
        if model.training and output.routings is not None:
            self._choices.append(stats.choices(stats.of_layers(output.routings)))

    def _stop_counting(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def loriini_model(model: nn.Module) -> LoriiniForCausalLM:
    """The model in a wrapper, such as PEFT's. ValueError without one."""
    inner = next((module for module in model.modules() if isinstance(module, LoriiniForCausalLM)), None)
    if inner is None:
        raise ValueError(f"{type(model).__name__} holds no LoriiniForCausalLM; leave RoutingCallback out")
    return inner
