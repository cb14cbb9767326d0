"""Models that are measured for a while, in the midst of training or not."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into `eval()`; on leaving, back into the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def undisturbed(model: PreTrainedModel) -> Iterator[None]:
    """The same, with the random state of before on leaving."""
    devices = [torch.cuda.current_device()] if model.device.type == "cuda" else []
    with evaluation_mode(model), torch.random.fork_rng(devices):
        yield
